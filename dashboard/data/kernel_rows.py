"""The kernels of a capture, added up by name."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from profiles.nsight import read_table

_ANONYMOUS = re.compile(r"<unnamed>::|\(anonymous namespace\)::")
_NAME = re.compile(r"^(?:void )?([^<(]+)")


@dataclass(frozen=True)
class KernelRow:
    """All launches of one kernel. None is not in the file."""

    kernel: str
    share_pct: float | None
    total_ms: float | None
    launches: int | None
    mean_us: float | None
    median_us: float | None
    min_us: float | None
    max_us: float | None
    name: str  # in full


def kernel_rows(folder: Path) -> list[KernelRow]:
    """Kernels by total time, the longest first; shares are of the plain sum over all kernels.

    Raises:
        ValueError: a table of the import is torn.
    """
    totals = read_table(folder, "kernel_totals")
    short = _short_names(read_table(folder, "kernels"))
    whole = pc.sum(totals["total_ns"]).as_py()
    rows = [
        KernelRow(
            kernel=short.get(row["name"]) or short_name(row["name"]),
            share_pct=_part(row["total_ns"], whole, 100),
            total_ms=_part(row["total_ns"], 1e6),
            launches=row["instances"],
            mean_us=_part(row["mean_ns"], 1e3),
            median_us=_part(row["median_ns"], 1e3),
            min_us=_part(row["min_ns"], 1e3),
            max_us=_part(row["max_ns"], 1e3),
            name=row["name"] or "(no name)",
        )
        for row in totals.to_pylist()
    ]
    return sorted(rows, key=lambda row: row.total_ms or 0.0, reverse=True)


def kernel_frame(rows: list[KernelRow]) -> pd.DataFrame:
    """The rows as a frame, its columns there even without rows."""
    return pd.DataFrame([asdict(row) for row in rows], columns=[f.name for f in fields(KernelRow)])


def short_name(name: str | None) -> str:
    """The function's own name, without its return type, template arguments and parameters."""
    found = _NAME.match(_ANONYMOUS.sub("", name or ""))
    return found[1].strip().rsplit("::", 1)[-1] if found else "(no name)"


def _short_names(kernels: pa.Table) -> dict[str, str]:
    pairs = pa.table({name: kernels[name].cast(pa.string()) for name in ("name", "short_name")})
    unique = pairs.group_by(["name", "short_name"]).aggregate([]).to_pylist()
    return {row["name"]: row["short_name"] for row in unique if row["name"] and row["short_name"]}


def _part(value: float | None, of: float | None, times: float = 1) -> float | None:
    return times * value / of if value is not None and of else None
