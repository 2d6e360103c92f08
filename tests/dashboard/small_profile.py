"""A small Nsight Systems export with kernels, a copy, NVTX ranges and GPU metrics."""

from __future__ import annotations

import sqlite3
from pathlib import Path

MS = 1_000_000
PROCESS = 4242 << 24
NAMES = ["void at::softmax<float>(float *)", "gemm_64x64", "softmax", "draft", "verify"]
# start ms, end ms, name: two of them overlap
KERNELS = [(10, 14, 0), (12, 16, 1), (30, 31, 1)]
RANGES = [(10, 12, 3), (12, 20, 4)]
SM_ACTIVE_PCT = [0, 50, 100, 25]


def small_profile(path: Path) -> Path:
    """Write the export."""
    with sqlite3.connect(path) as file:
        for table, columns, rows in _tables():
            file.execute(f'CREATE TABLE "{table}" ({", ".join(columns)})')
            marks = ", ".join("?" * len(columns))
            file.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)
    file.close()
    return path


def _tables():
    times = ["start", '"end"']
    place = ["deviceId", "streamId", "correlationId", "globalPid"]
    yield "StringIds", ["id", "value"], list(enumerate(NAMES, 1))
    yield (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        [*times, *place, "demangledName", "shortName"],
        [
            (a * MS, b * MS, 0, 7, i, PROCESS, name + 1, 3 if name == 0 else name + 1)
            for i, (a, b, name) in enumerate(KERNELS)
        ],
    )
    yield (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        [*times, *place, "bytes", "copyKind"],
        [(20 * MS, 21 * MS, 0, 7, 9, PROCESS, 4096, 1)],
    )
    yield (
        "NVTX_EVENTS",
        [*times, "eventType", "text", "textId", "domainId", "globalTid"],
        [(a * MS, b * MS, 59, None, name + 1, 0, PROCESS + 1) for a, b, name in RANGES],
    )
    yield (
        "TARGET_INFO_GPU_METRICS",
        ["typeId", "sourceId", "typeName", "metricId", "metricName"],
        [(1 << 48, 0, "", 0, "SMs Active [Throughput %]")],
    )
    yield (
        "GPU_METRICS",
        ["rawTimestamp", "timestamp", "typeId", "metricId", "value"],
        [(0, (10 + 5 * i) * MS, 1 << 48, 0, value) for i, value in enumerate(SM_ACTIVE_PCT)],
    )
