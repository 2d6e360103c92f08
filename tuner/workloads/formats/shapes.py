"""What the two trace formats share: ordering, the first arrival as zero, empty requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tuner.workloads.dropped import name_some
from tuner.workloads.formats.format import Contents
from tuner.workloads.workload import ShapeRequest


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One row of a trace. `ticks` is an arrival in whole units of 1 / `ticks_per_s` seconds."""

    line: int
    ticks: int
    input_tokens: int
    output_tokens: int


def as_shapes(traced: Iterable[TracedRequest], ticks_per_s: int) -> Contents:
    """Order by arrival and count time from the first one; requests of no tokens are dropped."""
    ordered = sorted(traced, key=lambda request: request.ticks)
    start = ordered[0].ticks if ordered else 0
    shapes: list[ShapeRequest] = []
    empty: list[str] = []
    for request in ordered:
        lengths = (request.input_tokens, request.output_tokens)
        if 0 in lengths:
            empty.append(f"line {request.line}: {lengths[0]} input, {lengths[1]} output tokens")
            continue
        shapes.append(ShapeRequest((request.ticks - start) / ticks_per_s, *lengths))
    return Contents(shapes=tuple(shapes), dropped=name_some(empty, "requests of no tokens"))
