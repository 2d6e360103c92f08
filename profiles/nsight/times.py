"""Intervals: which are plausible, how long their union is, statistics by group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.nsight.reading import Reading

DAY_NS = 86_400 * 10**9
_FARTHEST_NS = 30 * DAY_NS  # from the median start: no capture is that long


def plausible(
    reading: Reading, what: str, columns: dict[str, Any], unfinished: bool = False
) -> dict[str, Any]:
    """Drop rows without a possible start, empty impossible ends, and add `duration_ns`.

    An end before its start, or more than a day after it, is unknown rather than zero: damaged
    bytes and captures cut short both write such ends. `unfinished`: a null end is no damage.
    """
    starts = _integers(columns["start_ns"])
    known = starts.is_valid().to_numpy(zero_copy_only=False)
    start = starts.fill_null(0).to_numpy()
    if known.any():
        # NOTE floats: the difference of two damaged int64 can overflow.
        middle = float(np.median(start[known]))
        known &= np.abs(start.astype(np.float64) - middle) < _FARTHEST_NS
    if not known.all():
        reading.problem(f"{what}: {int((~known).sum())} rows without a possible start left out")
        columns = {name: values.filter(pa.array(known)) for name, values in columns.items()}
        start = start[known]
    ends = _integers(columns["end_ns"])
    has_end = ends.is_valid().to_numpy(zero_copy_only=False)
    end = ends.fill_null(0).to_numpy()
    gap = end.astype(np.float64) - start.astype(np.float64)
    usable = has_end & (gap >= 0) & (gap <= DAY_NS)
    bad = int((~usable).sum()) - (int((~has_end).sum()) if unfinished else 0)
    if bad:
        reading.problem(f"{what}: {bad} without a possible end; their durations are unknown")
    with np.errstate(over="ignore"):
        duration = end - start
    return columns | {
        "start_ns": pa.array(start),
        "end_ns": pa.array(end, mask=~usable),
        "duration_ns": pa.array(duration, mask=~usable),
    }


def union_ns(start: np.ndarray, end: np.ndarray) -> int:
    """Length of the union of intervals in ns."""
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    latest = np.maximum.accumulate(end)
    fresh = np.maximum(start[1:], latest[:-1])
    return int(end[0] - start[0]) + int(np.maximum(end[1:] - fresh, 0).sum())


def statistics_by(table: pa.Table, keys: list[str]) -> pa.Table:
    """Count, sum, mean, median, min, max and sample deviation of `duration_ns`, largest first.

    Rows of unknown duration are not counted, and at least one must be known.
    """
    table = table.filter(table["duration_ns"].is_valid())
    columns = [
        table[key].cast(pa.string()) if pa.types.is_dictionary(table[key].type) else table[key]
        for key in keys
    ]
    plain = pa.table([*columns, table["duration_ns"]], names=[*keys, "duration_ns"])
    grouped = plain.group_by(keys).aggregate(
        [
            ("duration_ns", "count"),
            ("duration_ns", "sum"),
            ("duration_ns", "mean"),
            ("duration_ns", "min"),
            ("duration_ns", "max"),
            ("duration_ns", "list"),
        ]
    )
    durations = grouped["duration_ns_list"].combine_chunks()
    lists = np.split(durations.values.to_numpy(), durations.offsets.to_numpy()[1:-1])
    return pa.table(
        {
            **{key: grouped[key] for key in keys},
            "instances": grouped["duration_ns_count"],
            "total_ns": grouped["duration_ns_sum"],
            "mean_ns": grouped["duration_ns_mean"],
            "median_ns": pa.array([np.median(values) for values in lists]),
            "min_ns": grouped["duration_ns_min"],
            "max_ns": grouped["duration_ns_max"],
            "stddev_ns": pa.array(
                [np.std(v, ddof=1) if len(v) > 1 else None for v in lists],
                pa.float64(),
            ),
        }
    ).sort_by([("total_ns", "descending")])


def _integers(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pc.cast(whole, pa.int64())
