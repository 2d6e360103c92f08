"""ShareGPT conversations: turns `from` human or gpt, of which the first human one is served."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.workloads.dropped import name_some
from tuner.workloads.formats.format import Contents, Format
from tuner.workloads.rows import Row
from tuner.workloads.workload import Message, Prompt

HUMAN = ("human", "user")


def _first_human_turn(row: Row) -> str | None:
    for turn in row.items("conversations"):
        if not isinstance(turn, dict):
            raise row.error('every turn must be {"from": "human" or "gpt", "value": "..."}')
        if turn.get("from") in HUMAN:
            return row.as_text(turn.get("value"), "value")
    return None


def _parse(rows: Iterable[Row]) -> Contents:
    prompts: list[Prompt] = []
    without_user: list[str] = []
    other_turns = 0
    for row in rows:
        label = row.label("id")
        text = _first_human_turn(row)
        if text is None or not text.strip():
            without_user.append(f"{label} (line {row.line}): no user turn")
            continue
        other_turns += len(row.items("conversations")) - 1
        prompts.append(Prompt(label, "chat", (Message("user", text),)))
    dropped = name_some(without_user, "conversations without a user turn")
    if other_turns:
        dropped += (f"{other_turns} other turns: only the first human turn is served",)
    return Contents(prompts=tuple(prompts), dropped=dropped)


SHAREGPT = Format(
    name="ShareGPT",
    shape='{"id": "...", "conversations": [{"from": "human", "value": "..."}]}',
    recognises=lambda keys: "conversations" in keys,
    parse=_parse,
)
