"""Azure LLM inference traces: CSV of arrival time, context tokens and generated tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from tuner.workloads.formats.format import Contents, Format
from tuner.workloads.formats.shapes import TracedRequest, as_shapes
from tuner.workloads.rows import Row

TICKS_PER_S = 10_000_000  # the traces are written to 100 ns, finer than datetime holds
TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,7}))?(Z|[+-]\d\d:\d\d)?")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _ticks(row: Row) -> int:
    text = row.text("TIMESTAMP").strip()
    match = TIMESTAMP.fullmatch(text)
    if match is None:
        raise row.error(f"TIMESTAMP {text!r} must look like 2023-11-16 18:17:03.9799600")
    second, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(second + (zone or "+00:00"))
    except ValueError as error:
        raise row.error(f"TIMESTAMP {text!r} is no date and time ({error})") from error
    whole = (moment - EPOCH) // timedelta(seconds=1)
    return whole * TICKS_PER_S + int((fraction or "0").ljust(7, "0"))


def _parse(rows: Iterable[Row]) -> Contents:
    traced = (
        TracedRequest(
            row.line, _ticks(row), row.count("ContextTokens"), row.count("GeneratedTokens")
        )
        for row in rows
    )
    return as_shapes(traced, TICKS_PER_S)


AZURE_TRACE = Format(
    name="Azure LLM trace",
    shape="CSV with TIMESTAMP,ContextTokens,GeneratedTokens",
    recognises=lambda keys: {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= keys,
    parse=_parse,
)
