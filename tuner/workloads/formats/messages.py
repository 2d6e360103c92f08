"""OpenAI chats: `messages` with roles, served up to the last user message."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.workloads.dropped import name_some
from tuner.workloads.formats.format import Contents, Format
from tuner.workloads.rows import Row
from tuner.workloads.workload import Message, Prompt


def _text_of_content(row: Row, content: object) -> str | None:
    """Return the text of `content`, or None where a part of it is no text (an image, a call)."""
    if content is None:
        return None
    if not isinstance(content, list):
        return row.as_text(content, "content")
    parts: list[str] = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            return None
        parts.append(row.as_text(part.get("text"), "text"))
    return "\n".join(parts)


def _up_to_last_user(row: Row) -> list[dict[str, object]]:
    messages = row.items("messages")
    for message in messages:
        if not isinstance(message, dict):
            raise row.error('every message must be {"role": "user", "content": "..."}')
    users = [i for i, message in enumerate(messages) if message.get("role") == "user"]
    return messages[: users[-1] + 1] if users else []


def _parse(rows: Iterable[Row]) -> Contents:
    prompts: list[Prompt] = []
    left_out: list[str] = []
    answers = 0
    for row in rows:
        label = row.label("custom_id", "id")
        asked = _up_to_last_user(row)
        texts = [_text_of_content(row, message.get("content")) for message in asked]
        if not asked or (texts[-1] is not None and not texts[-1].strip()):
            left_out.append(f"{label} (line {row.line}): no user turn")
            continue
        if None in texts:
            left_out.append(f"{label} (line {row.line}): content that is not text")
            continue
        answers += len(row.items("messages")) - len(asked)
        chat = tuple(
            Message(row.as_text(message.get("role"), "role"), text or "")
            for message, text in zip(asked, texts, strict=True)
        )
        prompts.append(Prompt(label, row.category("chat"), chat))
    dropped = name_some(left_out, "conversations")
    if answers:
        dropped += (f"{answers} messages after the last user message are not served",)
    return Contents(prompts=tuple(prompts), dropped=dropped)


MESSAGES = Format(
    name="OpenAI messages",
    shape='{"messages": [{"role": "user", "content": "..."}]}',
    recognises=lambda keys: "messages" in keys,
    parse=_parse,
)
