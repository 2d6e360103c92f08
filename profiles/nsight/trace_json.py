"""Walk a Chrome trace event by event, so that a file cut short or damaged still gives a part."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from decimal import Decimal
from typing import Any

from profiles.nsight.reading import Reading

# NOTE Decimal: a float holds an absolute time in microseconds only to some 0.25 of them.
_DECODER = json.JSONDecoder(strict=False, parse_float=Decimal)
_SPACE = re.compile(r"[\s,]*")
_NEXT_EVENT = re.compile(r"\}\s*,\s*(?=\{)")
_MAX_SKIPPED = 1_000
_EVERY = 5_000  # events between two words of progress


class TraceJson:
    """`facts` holds the small top-level values once `events` has been walked."""

    def __init__(self, reading: Reading, text: str) -> None:
        self._reading = reading
        self._text = text
        self.facts: dict[str, Any] = {}
        self.has_events = False

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event that can be read, in the file's order; problems are noted."""
        at = self._skip(0)
        if self._text.startswith("[", at):  # older: the bare list
            yield from self._list(at)
            return
        if not self._text.startswith("{", at):
            return
        at = self._skip(at + 1)
        while at < len(self._text) and self._text[at] != "}":
            value_at = self._key(at)
            if value_at is None:
                return
            key, at = value_at
            if key == "traceEvents" and self._text.startswith("[", at):
                at = yield from self._list(at)
            else:
                value = self._value(at)
                if value is None:
                    self._reading.problem(f"the trace's {key[:60]!r} cannot be read")
                    return
                self.facts[key], at = value
            at = self._skip(at)
        if at >= len(self._text):
            self._reading.problem("the trace is cut short")

    def _list(self, at: int) -> Generator[dict[str, Any], None, int]:
        """Events of the list at `at`; its generator value is where the list ends."""
        self.has_events = True
        text, skipped, count = self._text, 0, 0
        at = self._skip(at + 1)
        while at < len(text) and text[at] != "]":
            found = self._value(at)
            if found is None:
                skipped += 1
                following = _NEXT_EVENT.search(text, at)
                if following is None or skipped > _MAX_SKIPPED:
                    self._reading.problem(f"the trace cannot be read after event {count:,}")
                    return len(text)
                at = following.end()
                continue
            event, at = found
            if isinstance(event, dict):
                yield event
            count += 1
            if count % _EVERY == 0:
                self._reading.progress("events", at / len(text))
            at = self._skip(at)
        if skipped:
            self._reading.problem(f"{skipped} damaged events were left out")
        if at >= len(text):
            self._reading.problem(f"the trace is cut short after event {count:,}")
        return at + 1

    def _key(self, at: int) -> tuple[str, int] | None:
        key = self._value(at)
        if key is not None and isinstance(key[0], str):
            at = self._skip(key[1])
            if self._text.startswith(":", at):
                return key[0], self._skip(at + 1)
        self._reading.problem(f"the trace cannot be read after character {at:,}")
        return None

    def _value(self, at: int) -> tuple[Any, int] | None:
        try:
            return _DECODER.raw_decode(self._text, at)
        except (ValueError, RecursionError, ArithmeticError):
            return None

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return found.end() if found else at
