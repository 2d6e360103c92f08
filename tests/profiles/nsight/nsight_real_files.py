"""The real files that are shared beside the repository, and what tests ask of them."""

from pathlib import Path

import pytest

from profiles.nsight import read_capture

DATA = Path(__file__).parents[4] / "shared" / "data" / "nsight"
STATS = "nsys_stats_2025.3_h200"
needs_real_files = pytest.mark.skipif(
    not DATA.is_dir(), reason="the shared real files are not here"
)


def capture_of(name):
    return read_capture(DATA / name)


def total_of(capture, table, name, column="total_ns"):
    """Sum of a column over the rows of a totals table whose name begins with `name`."""
    key = "kind" if table == "copy_totals" else "name"
    rows = [row for row in capture.tables[table].to_pylist() if row[key].startswith(name)]
    return sum(row[column] for row in rows)


def copies_of(capture, kind):
    return tuple(
        total_of(capture, "copy_totals", kind, column) for column in ("count", "total_bytes")
    )


def ranges_of(capture):
    rows = capture.tables["range_totals"].to_pylist()
    return {row["name"]: (row["instances"], row["total_ns"]) for row in rows}


def busy_of(capture):
    return {busy.device: busy.busy_ns for busy in capture.summary.gpu_busy}
