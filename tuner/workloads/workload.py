"""What a workload is: prompts with text, or the bare shape of a traced load."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is `system`, `user`, `assistant` or what the file said."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation that ends with a user message, ready for the assistant's answer."""

    id: str
    category: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class ShapeRequest:
    """One traced request without text. `arrival_s` counts seconds from the first request."""

    arrival_s: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Either `prompts` or `shapes` is filled.

    `gives_acceptance` is False, with a `reason`, where the text is not real: acceptance measured
    on it says nothing about use. `dropped` tells in words what the source held and is not served.
    `content_hash` (sha256, hex) is the same on every machine and ignores name and path.
    """

    name: str
    prompts: tuple[Prompt, ...]
    shapes: tuple[ShapeRequest, ...]
    gives_acceptance: bool
    reason: str | None
    dropped: tuple[str, ...]
    content_hash: str


def hash_content(prompts: tuple[Prompt, ...], shapes: tuple[ShapeRequest, ...]) -> str:
    """Sha256 (hex) over the canonical JSON of what is served."""
    canonical = {
        "prompts": [[p.id, p.category, [[m.role, m.content] for m in p.messages]] for p in prompts],
        "shapes": [[s.arrival_s, s.input_tokens, s.output_tokens] for s in shapes],
    }
    text = json.dumps(canonical, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
