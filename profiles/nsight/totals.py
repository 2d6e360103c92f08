"""Totals by kernel, copy kind, API call and range, where the file has single events."""

from __future__ import annotations

import pyarrow as pa

from profiles.nsight.reading import Reading
from profiles.nsight.times import statistics_by

_KEYS = {
    "kernels": ("kernel_totals", ["name"]),
    "api_calls": ("api_totals", ["name"]),
    "ranges": ("range_totals", ["domain", "name", "style"]),
}


def add_totals(reading: Reading) -> None:
    """Add the `*_totals` tables that the file itself did not bring.

    Kernels are grouped by their demangled name, over all GPUs, as `nsys stats` does. Totals are
    plain sums: work that overlaps counts twice.
    """
    for source, (target, keys) in _KEYS.items():
        table = reading.tables.get(source)
        if table is None or target in reading.tables:
            continue
        if table["duration_ns"].null_count == len(table):
            continue
        grouped = statistics_by(table, keys)
        columns = {name: grouped[name] for name in grouped.column_names}
        if target == "kernel_totals":
            columns["name_is_cut"] = pa.array([False] * len(grouped))
        reading.add(target, columns)
    copies = reading.tables.get("copies")
    if copies is not None and "copy_totals" not in reading.tables:
        _add_copies(reading, copies)


def _add_copies(reading: Reading, copies: pa.Table) -> None:
    plain = pa.table(
        {"kind": copies["kind"].cast(pa.string())}
        | {name: copies[name] for name in ("bytes", "duration_ns", "start_ns")}
    )
    # NOTE a null kind is a group too, so rows are counted by a column that is never null.
    sums = [("start_ns", "count"), ("bytes", "sum"), ("duration_ns", "sum")]
    grouped = plain.group_by("kind").aggregate(sums).sort_by([("duration_ns_sum", "descending")])
    reading.add(
        "copy_totals",
        {
            "kind": grouped["kind"],
            "count": grouped["start_ns_count"],
            "total_bytes": grouped["bytes_sum"],
            "total_ns": grouped["duration_ns_sum"],
        },
    )
