"""Summary reports of `nsys stats`: totals by kernel, API call, NVTX range and copy kind.

Sizes are printed in MB with three decimals: they are rounded, and a 0.000 means too small to say,
never zero bytes.
"""

from __future__ import annotations

import re

import pyarrow as pa

from profiles.nsight.reading import Reading
from profiles.nsight.schemas import INT
from profiles.nsight.stats_tables import StatsTable

_FLOATS = {"mean_ns", "median_ns", "stddev_ns"}
_CUT_NAME = re.compile(r"(…|\.\.\.)$")
_COPY = re.compile(r"CUDA (Unified Memory )?(memcpy|memset)\s*([^\]]*)")
_COPY_KINDS = {
    "host-to-device": "HtoD",
    "device-to-host": "DtoH",
    "device-to-device": "DtoD",
    "host-to-host": "HtoH",
    "peer-to-peer": "PtoP",
}
_STYLES = {"PushPop": "push_pop", "StartEnd": "start_end"}


def _statistics(reading: Reading, table: StatsTable, count: str, what: str) -> dict[str, pa.Array]:
    """The common columns of a summary, checked against each other."""
    columns: dict[str, list] = {
        "instances": _possible(table.integers(count, "instances", "count"), 1),
        "total_ns": _possible(table.integers("total time"), 0),
        "mean_ns": table.numbers("avg", "average"),
        "median_ns": table.numbers("med", "median"),
        "min_ns": table.integers("min", "minimum"),
        "max_ns": table.integers("max", "maximum"),
        "stddev_ns": table.numbers("stddev"),
    }
    rows = zip(columns["instances"], columns["total_ns"], columns["mean_ns"], strict=True)
    printed = 0.06 * table.scale("total time")  # means are rounded to a tenth of what is printed
    disagreeing = sum(_disagrees(*row, printed) for row in rows)
    if disagreeing:
        reading.problem(f"{what}: in {disagreeing} rows the total is not count times mean")
    shares = [share for share in table.numbers("time") if share is not None]
    # NOTE shares are rounded to a tenth, so that many small ones can lose a lot together.
    if shares and abs(sum(shares) - 100) > 0.5 + 0.05 * len(shares):
        reading.problem(f"{what}: the shares add up to {sum(shares):.1f} %, rows are missing")
    unknown = sum(None in row[:2] for row in zip(*list(columns.values())[:2], strict=True))
    if unknown:
        reading.problem(f"{what}: {unknown} rows without a total time or a count")
    return {
        name: pa.array(values, pa.float64() if name in _FLOATS else INT)
        for name, values in columns.items()
    }


def _possible(values: list[int | None], least: int) -> list[int | None]:
    """Counts and totals; what no capture can reach is unknown."""
    return [value if value is not None and least <= value < 10**17 else None for value in values]


def _disagrees(count: int | None, total: int | None, mean: float | None, slack: float) -> bool:
    if count is None or total is None or mean is None:
        return False
    return abs(count * mean - total) > max(slack * count, 0.02 * total)


def keep(reading: Reading, name: str, columns: dict[str, pa.Array]) -> None:
    """Add a table unless an earlier report already gave it."""
    if name in reading.tables:
        reading.info(f"a second table with {name.replace('_', ' ')} was left out")
    else:
        reading.add(name, columns)


def read_kernel_sum(reading: Reading, table: StatsTable) -> None:
    """Fill `kernel_totals`."""
    names = table.text("name")
    cut = [bool(name and _CUT_NAME.search(name)) for name in names]
    if any(cut):
        reading.warn(
            f"{sum(cut)} kernel names were cut by `nsys stats`: kernels under one name can differ"
        )
    columns = {"name": pa.array(names, pa.string()), "name_is_cut": pa.array(cut)}
    statistics = _statistics(reading, table, "instances", "kernels")
    keep(reading, "kernel_totals", columns | statistics)


def read_api_sum(reading: Reading, table: StatsTable) -> None:
    """Fill `api_totals`."""
    columns = {"name": pa.array(table.text("name"), pa.string())}
    keep(reading, "api_totals", columns | _statistics(reading, table, "num calls", "API calls"))


def read_nvtx_sum(reading: Reading, table: StatsTable) -> None:
    """Fill `range_totals`."""
    columns = range_columns(table.text("range"), "name")
    columns["style"] = pa.array(_styles(table), pa.string())
    statistics = _statistics(reading, table, "instances", "NVTX ranges")
    keep(reading, "range_totals", columns | statistics)


def read_nvtx_kernels(reading: Reading, table: StatsTable) -> None:
    """Fill `range_kernels`."""
    columns = range_columns(table.text("nvtx range"), "range")
    columns |= {
        "style": pa.array(_styles(table), pa.string()),
        "pid": pa.array(table.integers("pid"), INT),
        "tid": pa.array(table.integers("tid"), INT),
        "range_instances": pa.array(table.integers("nvtx inst"), INT),
        "kernel": pa.array(table.text("kernel name"), pa.string()),
    }
    keep(
        reading, "range_kernels", columns | _statistics(reading, table, "kern inst", "NVTX kernels")
    )


def range_columns(names: list[str | None], column: str) -> dict[str, pa.Array]:
    """`domain:name`; the default domain is written as `:name`."""
    parts = [name.partition(":") if name and ":" in name else ("", "", name) for name in names]
    return {
        "domain": pa.array([part[0] for part in parts], pa.string()),
        column: pa.array([part[2] for part in parts], pa.string()),
    }


def _styles(table: StatsTable) -> list[str | None]:
    return [_STYLES.get(style or "", style) for style in table.text("style")]


def read_sizes(reading: Reading, table: StatsTable, name: str) -> list[int | None]:
    """Bytes of a column in MB; null where it reads zero."""
    sizes = _possible(table.integers(name), 0)
    if any(sizes):
        reading.info("sizes come from MB with three decimals and are rounded")
    return [size or None for size in sizes]


def copy_kind(operation: str | None) -> str | None:
    """Our word for an operation such as `[CUDA memcpy Host-to-Device]`, old `HtoD`."""
    found = _COPY.search(operation or "")
    if not found:
        return operation
    if found[2] == "memset":
        return "memset"
    how = found[3].strip()
    unified = found[1] or how.lower().startswith("unified ")
    how = how[len("unified ") :] if how.lower().startswith("unified ") else how
    return ("UVM " if unified else "") + _COPY_KINDS.get(how.lower(), how)


def read_copy_sum(reading: Reading, table: StatsTable) -> None:
    """Times and sizes of copies are two reports: whichever comes second completes the first."""
    before = reading.tables.get("copy_totals")
    by_kind = {row["kind"]: row for row in before.to_pylist()} if before is not None else {}
    sizes = read_sizes(reading, table, "total") if table.has("total") else [None] * table.rows
    rows = zip(
        table.text("operation"),
        _possible(table.integers("count", "operations", "instances"), 1),
        _possible(table.integers("total time"), 0),
        sizes,
        strict=True,
    )
    for operation, count, total_ns, size in rows:
        kind = copy_kind(operation)
        row = by_kind.setdefault(
            kind, {"kind": kind, "count": count, "total_bytes": None, "total_ns": None}
        )
        row["total_bytes"] = row["total_bytes"] if size is None else size
        row["total_ns"] = row["total_ns"] if total_ns is None else total_ns
    columns = ["kind", "count", "total_bytes", "total_ns"]
    kept = [tuple(row[name] for name in columns) for row in by_kind.values()]
    reading.add_rows("copy_totals", columns, kept)
