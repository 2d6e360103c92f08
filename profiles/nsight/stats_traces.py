"""Trace reports of `nsys stats`: one row an event, with start times."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from profiles.nsight.reading import Reading
from profiles.nsight.schemas import INT, TEXT
from profiles.nsight.stats_sums import copy_kind, keep, range_columns, read_sizes
from profiles.nsight.stats_tables import StatsTable
from profiles.nsight.times import plausible

_DEVICE = re.compile(r"\((\d{1,4})\)\s*$")
_COPY_ROW = re.compile(r"^\[CUDA ")


def read_gpu_trace(reading: Reading, table: StatsTable) -> None:
    """Fill `kernels` and `copies`; copies are the rows named like `[CUDA memcpy ...]`."""
    names = table.text("name")
    is_copy = pa.array([bool(name and _COPY_ROW.match(name)) for name in names])
    devices = [_device(cell) for cell in table.text("device")]
    columns = _times(table) | {
        "gpu": pa.array(devices, INT),
        "device": pa.array(devices, INT),
        "stream": pa.array(table.integers("strm"), INT),
        "context": pa.array(table.integers("ctx"), INT),
        "correlation_id": pa.array(table.integers("corrid"), INT),
        "name": pa.array(names, TEXT),
    }
    kernels = columns | {
        "grid_x": pa.array(table.integers("grdx"), INT),
        "grid_y": pa.array(table.integers("grdy"), INT),
        "grid_z": pa.array(table.integers("grdz"), INT),
        "block_x": pa.array(table.integers("blkx"), INT),
        "block_y": pa.array(table.integers("blky"), INT),
        "block_z": pa.array(table.integers("blkz"), INT),
        "registers_per_thread": pa.array(table.integers("reg/trd"), INT),
    }
    _keep_where(reading, "kernels", kernels, [not copy.as_py() for copy in is_copy])
    copies = columns | {
        "kind": pa.array([copy_kind(name) for name in names], TEXT),
        "bytes": pa.array(read_sizes(reading, table, "bytes"), INT),
        "source_memory": pa.array(_lower(table.text("srcmemkd")), TEXT),
        "target_memory": pa.array(_lower(table.text("dstmemkd")), TEXT),
    }
    copies.pop("name")
    _keep_where(reading, "copies", copies, is_copy.to_pylist())


def read_api_trace(reading: Reading, table: StatsTable) -> None:
    """Fill `api_calls`."""
    columns = _times(table) | {
        "pid": pa.array(table.integers("pid"), INT),
        "tid": pa.array(table.integers("tid"), INT),
        "correlation_id": pa.array(table.integers("corrid"), INT),
        "name": pa.array(table.text("name"), TEXT),
        "return_value": pa.array(table.integers("result"), INT),
    }
    keep(reading, "api_calls", plausible(reading, "API calls", columns))


def read_nvtx_trace(reading: Reading, table: StatsTable) -> None:
    """Fill `ranges`."""
    columns = _times(table) | range_columns(table.text("name"), "name")
    columns |= {
        "pid": pa.array(table.integers("pid"), INT),
        "tid": pa.array(table.integers("tid"), INT),
        "style": pa.array(["push_pop"] * table.rows, TEXT),
    }
    keep(reading, "ranges", plausible(reading, "NVTX ranges", columns))


def _times(table: StatsTable) -> dict[str, Any]:
    starts, durations = table.integers("start"), table.integers("duration")
    ends = [
        start + duration if start is not None and duration is not None else None
        for start, duration in zip(starts, durations, strict=True)
    ]
    return {"start_ns": pa.array(starts, INT), "end_ns": pa.array(ends, INT)}


def _keep_where(reading: Reading, name: str, columns: dict[str, Any], rows: list[bool]) -> None:
    if any(rows):
        chosen = {column: values.filter(pa.array(rows)) for column, values in columns.items()}
        keep(reading, name, plausible(reading, name, chosen))


def _device(cell: str | None) -> int | None:
    """The number in `NVIDIA H200 (0)`."""
    found = _DEVICE.search(cell or "")
    return int(found[1]) if found else None


def _lower(cells: list[str | None]) -> list[str | None]:
    return [cell.lower() if cell else None for cell in cells]
