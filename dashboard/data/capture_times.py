"""What in an imported profile has a time: GPU work, NVTX ranges and sampled GPU metrics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dashboard.data.coverage import Floats
from profiles.nsight import read_table

MOST_RANGES = 8
_NUMBERED = r",? (op_id|seq) = \d+.*$"  # what PyTorch puts behind the name of an operator
METRICS = (
    "sm_active_pct",
    "tensor_active_pct",
    "dram_read_pct",
    "dram_write_pct",
    "gpc_clock_mhz",
)
_WORK = {"kernels": "kernels", "graph_spans": "whole CUDA graphs", "copies": "copies"}


@dataclass(frozen=True)
class Intervals:
    """When something ran, in ms since the capture's first event."""

    label: str
    start_ms: Floats
    end_ms: Floats


@dataclass(frozen=True)
class MetricSamples:
    """One sampled GPU metric, in ms since the capture's first event; its unit ends its name."""

    metric: str
    gpu: int | None
    at_ms: Floats
    values: Floats


@dataclass(frozen=True)
class CaptureTimes:
    """Everything in a capture that has a time. Shared: never change it."""

    lanes: tuple[Intervals, ...]
    metrics: tuple[MetricSamples, ...]
    length_ms: float

    @property
    def worked_ms(self) -> tuple[float, float]:
        """From the first to the last event of a lane; the whole capture without lanes."""
        if not self.lanes:
            return (0.0, self.length_ms)
        return (
            min(float(lane.start_ms.min()) for lane in self.lanes),
            max(float(lane.end_ms.max()) for lane in self.lanes),
        )


def capture_times(folder: Path) -> CaptureTimes:
    """Lanes of GPU work and of the NVTX ranges that took longest, and the GPU metrics.

    Raises:
        ValueError: a table of the import is torn.
    """
    work = {name: _timed(read_table(folder, name)) for name in _WORK}
    ranges = _timed(read_table(folder, "ranges"))
    samples = read_table(folder, "gpu_metrics")
    events = [table for table in (*work.values(), ranges) if len(table)]
    times = [pc.min(table["start_ns"]).as_py() for table in events]
    last = [pc.max(table["end_ns"]).as_py() for table in events]
    if len(samples):
        times.append(pc.min(samples["timestamp_ns"]).as_py())
        last.append(pc.max(samples["timestamp_ns"]).as_py())
    if not times:
        return CaptureTimes((), (), 0.0)
    first = min(times)
    lanes = [lane for name, what in _WORK.items() for lane in _by_gpu(work[name], what, first)]
    return CaptureTimes(
        (*lanes, *_by_name(ranges, first)),
        tuple(_metrics(samples, first)),
        (max(last) - first) / 1e6,
    )


def _timed(table: pa.Table) -> pa.Table:
    """The rows whose start and end are known."""
    return table.filter(pc.and_(table["start_ns"].is_valid(), table["end_ns"].is_valid()))


def _by_gpu(table: pa.Table, what: str, first_ns: int) -> list[Intervals]:
    gpus = pc.fill_null(table["gpu"], -1).to_numpy()
    return [
        _intervals(f"{'GPU' if gpu < 0 else f'GPU {gpu}'} {what}", table, gpus == gpu, first_ns)
        for gpu in np.unique(gpus)
    ]


def _by_name(ranges: pa.Table, first_ns: int) -> list[Intervals]:
    if not len(ranges):
        return []
    names = pc.replace_substring_regex(ranges["name"].cast(pa.string()), _NUMBERED, "")
    plain = pa.table({"name": names, "duration_ns": ranges["duration_ns"]})
    totals = plain.group_by("name").aggregate([("duration_ns", "sum")])
    longest = totals.sort_by([("duration_ns_sum", "descending")])["name"].to_pylist()
    return [
        _intervals(f"range {name}", ranges, pc.equal(plain["name"], name).to_numpy(), first_ns)
        for name in longest[:MOST_RANGES]
        if name is not None
    ]


def _intervals(label: str, table: pa.Table, rows: np.ndarray, first_ns: int) -> Intervals:
    start, end = (table[name].to_numpy()[rows] for name in ("start_ns", "end_ns"))
    return Intervals(label, (start - first_ns) / 1e6, (end - first_ns) / 1e6)


def _metrics(samples: pa.Table, first_ns: int) -> list[MetricSamples]:
    found = []
    for metric in METRICS:
        mine = samples.filter(pc.equal(samples["metric"].cast(pa.string()), metric))
        gpus = pc.fill_null(mine["gpu"], -1).to_numpy()
        for gpu in np.unique(gpus):
            at = mine["timestamp_ns"].to_numpy()[gpus == gpu]
            order = np.argsort(at, kind="stable")
            values = mine["value"].to_numpy()[gpus == gpu].astype(np.float64)[order]
            at_ms = (at[order] - first_ns) / 1e6
            found.append(MetricSamples(metric, int(gpu) if gpu >= 0 else None, at_ms, values))
    return found
