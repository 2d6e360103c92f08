"""One prompt a row under `prompt` or `question`; HumanEval and GSM8K are written so."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.workloads.dropped import name_some
from tuner.workloads.formats.format import Contents, Format
from tuner.workloads.rows import Row
from tuner.workloads.workload import Message, Prompt


def _category(row: Row) -> str:
    is_humaneval = "canonical_solution" in row.fields
    is_gsm8k = "\n#### " in str(row.fields.get("answer"))
    return row.category("code" if is_humaneval else "math" if is_gsm8k else "none")


def _text(row: Row) -> str:
    for key in ("prompt", "question"):
        if key in row.fields:
            return row.text(key)
    raise row.error("has neither `prompt` nor `question`")


def _parse(rows: Iterable[Row]) -> Contents:
    prompts: list[Prompt] = []
    empty: list[str] = []
    for row in rows:
        label = row.label("id", "task_id", "question_id")
        text = _text(row)
        if not text.strip():
            empty.append(f"{label} (line {row.line}): empty prompt")
            continue
        prompts.append(Prompt(label, _category(row), (Message("user", text),)))
    return Contents(prompts=tuple(prompts), dropped=name_some(empty, "empty prompts"))


PLAIN_PROMPT = Format(
    name="plain prompts, HumanEval or GSM8K",
    shape='{"prompt": "..."} or {"question": "..."}',
    recognises=lambda keys: "prompt" in keys or "question" in keys,
    parse=_parse,
)
