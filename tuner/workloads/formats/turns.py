"""MT-bench and Spec-Bench questions: `turns` holds what the user says, turn after turn."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.workloads.dropped import name_some
from tuner.workloads.formats.format import Contents, Format
from tuner.workloads.rows import Row
from tuner.workloads.workload import Message, Prompt


def _parse(rows: Iterable[Row]) -> Contents:
    prompts: list[Prompt] = []
    without_turn: list[str] = []
    later_turns = 0
    for row in rows:
        turns = [row.as_text(turn, "turns") for turn in row.items("turns")]
        label = row.label("question_id", "id")
        if not turns or not turns[0].strip():
            without_turn.append(f"{label} (line {row.line}): no first turn")
            continue
        later_turns += len(turns) - 1
        prompts.append(Prompt(label, row.category("none"), (Message("user", turns[0]),)))
    dropped = name_some(without_turn, "questions without a first turn")
    if later_turns:
        dropped += (f"{later_turns} later turns: only the first turn of a question is served",)
    return Contents(prompts=tuple(prompts), dropped=dropped)


TURNS = Format(
    name="MT-bench or Spec-Bench",
    shape='{"question_id": 81, "category": "writing", "turns": ["..."]}',
    recognises=lambda keys: "turns" in keys,
    parse=_parse,
)
