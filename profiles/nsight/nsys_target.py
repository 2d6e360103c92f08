"""What an Nsight Systems export says about itself: versions, clock, GPUs, CUDA-graph mode."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.nsight.reading import Reading
from profiles.nsight.schemas import INT, TEXT
from profiles.nsight.sqlite_source import SqliteSource
from profiles.nsight.summary import GpuDescription
from profiles.nsight.times import DAY_NS

_MAX_MAPPED = 1024  # (process, device) pairs
_INSTALLED = re.compile(r"nsight-?systems(?:-cli)?[-/](20\d\d\.\d+(?:\.\d+)?)", re.IGNORECASE)


@dataclass
class GpuNumbers:
    """Which physical GPU a process meant by its CUDA ordinal."""

    by_process: dict[tuple[int, int], int] = field(default_factory=dict)  # from 2025.1
    by_ordinal: dict[int, int] = field(default_factory=dict)

    def gpu(self, pid: pa.Array, device: pa.Array) -> pa.Array:
        """Physical GPU of each row; the CUDA ordinal itself where the report has no list."""
        ordinal = pc.fill_null(device, -1).to_numpy(zero_copy_only=False)
        process = pc.fill_null(pid, -1).to_numpy(zero_copy_only=False)
        gpu = ordinal.copy()
        for cuda, physical in self.by_ordinal.items():
            gpu[ordinal == cuda] = physical
        for (of_process, cuda), physical in self.by_process.items():
            gpu[(ordinal == cuda) & (process == of_process)] = physical
        return pa.array(gpu, mask=ordinal < 0)


def pid_of(global_id: pa.ChunkedArray) -> pa.Array:
    """Process id in Nsight's globalPid or globalTid, bits 24 to 47."""
    return pc.bit_wise_and(pc.shift_right(global_id.combine_chunks(), 24), 0xFFFFFF)


def tid_of(global_id: pa.ChunkedArray) -> pa.Array:
    """Thread id in Nsight's globalTid, its low 24 bits."""
    return pc.bit_wise_and(global_id.combine_chunks(), 0xFFFFFF)


def read_target(source: SqliteSource, reading: Reading) -> GpuNumbers:
    """Fill in the facts about the capture and return the numbering of its GPUs."""
    export = _pairs(source, "META_DATA_EXPORT", "EXPORT_META_DATA")
    reading.tool_version = export.get("EXPORT_PRODUCT_VERSION")
    reading.schema_version = export.get("EXPORT_SCHEMA_VERSION")
    if export.get("EXPORT_PARAM_TABLES_TO_EXPORT") or export.get("EXPORT_PARAM_TIMES_TO_EXPORT"):
        reading.warn("only some tables or times were exported: the capture holds more than this")
    if export.get("EXPORT_CONFIG_TIME_SHIFT", "0") not in ("0", ""):
        reading.warn("the export shifted all times by EXPORT_CONFIG_TIME_SHIFT")
    capture = _pairs(source, "META_DATA_CAPTURE")
    mode = next((v for k, v in capture.items() if k.endswith("CUDA_GRAPH_TRACE_OPTIONS:MODE")), "")
    if mode in ("Graph", "Node"):
        reading.cuda_graph_mode = "graph" if mode == "Graph" else "node"
    environment = _pairs(source, "TARGET_INFO_SYSTEM_ENV")
    found = _INSTALLED.search(environment.get("TargetInstallDir", ""))
    reading.captured_by = found[1] if found else None
    _read_clock(source, reading)
    return _read_gpus(source, reading)


def _pairs(source: SqliteSource, *tables: str) -> Mapping[str, str]:
    read = source.read(source.find(*tables), {"name": TEXT, "value": TEXT}, ("name", "value"))
    if read is None:
        return {}
    return {
        name: value
        for name, value in zip(read["name"].to_pylist(), read["value"].to_pylist(), strict=True)
        # NOTE environment variables can hold secrets: they are not even kept in memory.
        if name and value and "ENVIRONMENT_VARIABLE" not in name
    }


def _read_clock(source: SqliteSource, reading: Reading) -> None:
    start = source.read(
        source.find("TARGET_INFO_SESSION_START_TIME"), {"utcEpochNs": INT}, ("utcEpochNs",)
    )
    reading.origin_epoch_ns = start["utcEpochNs"][0].as_py() if start else None
    # NOTE startTime and stopTime are on another clock than the events: only the length counts.
    details = source.read(source.find("ANALYSIS_DETAILS"), {"duration": INT}, ("duration",))
    duration = details["duration"][0].as_py() if details else None
    if duration is not None and 0 < duration < 30 * DAY_NS:
        reading.duration_ns = duration


def _read_gpus(source: SqliteSource, reading: Reading) -> GpuNumbers:
    listed = source.read(
        source.find("TARGET_INFO_GPU"),
        {"id": INT, "cuDevice": INT, "name": TEXT, "uuid": TEXT},
        ("id",),
    )
    if listed is None:  # 2019 and 2020 export this one, or neither
        old = source.read(
            source.find("TARGET_INFO_CUDA_GPU"), {"deviceId": INT, "name": TEXT}, ("deviceId",)
        )
        if old is not None:
            nulls = pa.nulls(len(old["name"]), TEXT)
            both = old["deviceId"]
            listed = {"id": both, "cuDevice": both, "name": old["name"], "uuid": nulls}
    numbers = GpuNumbers()
    if listed is None:
        reading.missing["gpus"] = "the report lists no GPUs; they are numbered as CUDA does"
        return numbers
    rows = zip(*(listed[name].to_pylist() for name in listed), strict=True)
    for gpu, cuda, name, uuid in list(rows)[:_MAX_MAPPED]:
        if gpu is None:
            continue
        reading.gpus.append(GpuDescription(gpu=gpu, cuda_device=cuda, name=name, uuid=uuid))
        if cuda is not None:
            numbers.by_ordinal[cuda] = gpu
    numbers.by_process = _processes(source)
    return numbers


def _processes(source: SqliteSource) -> dict[tuple[int, int], int]:
    columns = {"pid": INT, "cudaId": INT, "gpuId": INT}
    read = source.read(source.find("TARGET_INFO_CUDA_DEVICE"), columns, tuple(columns))
    if read is None:
        return {}
    rows = np.column_stack([pc.fill_null(read[name], -1).to_numpy() for name in columns])
    return {(int(pid), int(cuda)): int(gpu) for pid, cuda, gpu in rows[:_MAX_MAPPED] if gpu >= 0}
