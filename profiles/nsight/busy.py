"""GPU busy: the union of what ran on each GPU, so that overlap counts once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.nsight.summary import GpuBusy
from profiles.nsight.times import union_ns

_COLUMNS = ["start_ns", "end_ns", "gpu", "device"]


def busy_per_gpu(tables: dict[str, pa.Table]) -> list[GpuBusy] | None:
    """Busy time of each GPU from kernels and whole CUDA graphs; None without any with times.

    Copies are not counted: `gpu_busy` means that some kernel ran, as NVML has it.
    """
    parts = [tables[name].select(_COLUMNS) for name in ("kernels", "graph_spans") if name in tables]
    if not parts:
        return None
    work = pa.concat_tables(parts)
    work = work.filter(pc.and_(work["start_ns"].is_valid(), work["end_ns"].is_valid()))
    if not len(work):
        return None
    gpus = pc.fill_null(work["gpu"], -1).to_numpy()
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    devices = pc.fill_null(work["device"], -1).to_numpy()
    return [
        _busy(int(gpu), devices[gpus == gpu], start[gpus == gpu], end[gpus == gpu])
        for gpu in np.unique(gpus)
    ]


def _busy(gpu: int, device: np.ndarray, start: np.ndarray, end: np.ndarray) -> GpuBusy:
    ordinals = np.unique(device)
    return GpuBusy(
        gpu=gpu if gpu >= 0 else None,
        device=int(ordinals[0]) if len(ordinals) == 1 and ordinals[0] >= 0 else None,
        busy_ns=union_ns(start, end),
        window_ns=int(end.max() - start.min()),
    )
