"""Telling what was left out without drowning the reader."""

from __future__ import annotations

from collections.abc import Sequence

NAMED = 20


def name_some(lines: Sequence[str], what: str) -> tuple[str, ...]:
    """Keep the first 20 lines; one more line counts the rest, calling them `what`."""
    if len(lines) <= NAMED:
        return tuple(lines)
    return (*lines[:NAMED], f"and {len(lines) - NAMED} more {what}")
