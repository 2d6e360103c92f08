"""Mooncake traces: arrival in milliseconds, input and output length in tokens."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.workloads.formats.format import Contents, Format
from tuner.workloads.formats.shapes import TracedRequest, as_shapes
from tuner.workloads.rows import Row

TICKS_PER_S = 1000


def _parse(rows: Iterable[Row]) -> Contents:
    traced = (
        TracedRequest(
            row.line, row.count("timestamp"), row.count("input_length"), row.count("output_length")
        )
        for row in rows
    )
    return as_shapes(traced, TICKS_PER_S)


MOONCAKE_TRACE = Format(
    name="Mooncake trace",
    shape='{"timestamp": 0, "input_length": 40160, "output_length": 6}',
    recognises=lambda keys: {"timestamp", "input_length", "output_length"} <= keys,
    parse=_parse,
)
