"""The prompts that ship with the project: one JSON Lines file per category in `builtin/`."""

from __future__ import annotations

import json
from itertools import chain, zip_longest
from pathlib import Path

from tuner.workloads.workload import Message, Prompt

BUILTIN_CATEGORIES = ("chat", "code", "math", "summarization", "extraction", "writing")
FOLDER = Path(__file__).parent / "builtin"


def read_builtin(categories: tuple[str, ...]) -> tuple[Prompt, ...]:
    """Return the prompts of `categories`, dealt round-robin so that the first few cover all."""
    columns = [_read_category(category) for category in categories]
    dealt = chain.from_iterable(zip_longest(*columns))
    return tuple(prompt for prompt in dealt if prompt is not None)


def _read_category(category: str) -> list[Prompt]:
    # NOTE: str.splitlines would also split at U+2028, which JSON allows inside strings.
    lines = (FOLDER / f"{category}.jsonl").read_text(encoding="utf-8").strip().split("\n")
    rows = [json.loads(line) for line in lines]
    return [Prompt(row["id"], row["category"], (Message("user", row["prompt"]),)) for row in rows]
