"""What ran on the GPUs of an Nsight Systems export: kernels, whole CUDA graphs, copies."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from profiles.nsight.nsys_strings import Strings
from profiles.nsight.nsys_target import GpuNumbers, pid_of
from profiles.nsight.reading import Reading
from profiles.nsight.schemas import INT
from profiles.nsight.sqlite_source import SqliteSource
from profiles.nsight.times import plausible

# NOTE written out, because the ENUM_ tables are missing from old files.
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "UVM HtoD",
    12: "UVM DtoH",
    13: "UVM DtoD",
}
MEMORY_KINDS = {
    0: "pageable",
    1: "pinned",
    2: "device",
    3: "array",
    4: "managed",
    5: "device static",
    6: "managed static",
}

_WHERE_AND_WHEN = {
    "start": "start_ns",
    "end": "end_ns",
    "deviceId": "device",
    "streamId": "stream",
    "contextId": "context",
    "correlationId": "correlation_id",
    "globalPid": "pid",
}
_KERNEL = {
    "gridX": "grid_x",
    "gridY": "grid_y",
    "gridZ": "grid_z",
    "blockX": "block_x",
    "blockY": "block_y",
    "blockZ": "block_z",
    "registersPerThread": "registers_per_thread",
    "staticSharedMemory": "static_shared_memory_bytes",
    "dynamicSharedMemory": "dynamic_shared_memory_bytes",
    "graphNodeId": "graph_node_id",
    "demangledName": "name",
    "shortName": "short_name",
}
_GRAPH = {"graphId": "graph_id", "graphExecId": "graph_exec_id"}
_COPY = {
    "bytes": "bytes",
    "copyKind": "kind",
    "srcKind": "source_memory",
    "dstKind": "target_memory",
    "graphNodeId": "graph_node_id",
}
_MEMSET = {"bytes": "bytes", "memKind": "target_memory", "graphNodeId": "graph_node_id"}
_ALWAYS_THERE = ("start", "end")


class GpuWork:
    """Reads the CUPTI tables of one file into the normalised ones."""

    def __init__(
        self, source: SqliteSource, reading: Reading, strings: Strings, gpus: GpuNumbers
    ) -> None:
        self._source = source
        self._reading = reading
        self._strings = strings
        self._gpus = gpus

    def read(self) -> None:
        """Fill `kernels`, `graph_spans` and `copies`."""
        kernels = self._rows("CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL, "kernels")
        if kernels:
            for column in ("name", "short_name"):
                kernels[column] = self._strings.names(_chunked(kernels[column]), "kernels")
            self._reading.add("kernels", kernels)
        spans = self._rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", _GRAPH, "CUDA graphs")
        if spans:
            self._reading.add("graph_spans", spans)
        self._read_copies()

    def _read_copies(self) -> None:
        parts: list[dict[str, Any]] = []
        copies = self._rows("CUPTI_ACTIVITY_KIND_MEMCPY", _COPY, "copies")
        if copies:
            copies["kind"] = self._words(copies["kind"], COPY_KINDS, "copy kind")
            copies["source_memory"] = self._words(copies["source_memory"], MEMORY_KINDS)
            copies["target_memory"] = self._words(copies["target_memory"], MEMORY_KINDS)
            parts.append(copies)
        memsets = self._rows("CUPTI_ACTIVITY_KIND_MEMSET", _MEMSET, "memsets")
        if memsets:
            rows = len(memsets["start_ns"])
            memsets["kind"] = pa.array(["memset"] * rows)
            memsets["target_memory"] = self._words(memsets["target_memory"], MEMORY_KINDS)
            memsets["source_memory"] = pa.nulls(rows, pa.string())
            parts.append(memsets)
        if parts:
            joined = pa.concat_tables([pa.table(part) for part in parts], promote_options="default")
            self._reading.add("copies", {name: joined[name] for name in joined.column_names})

    def _rows(self, table: str, more: dict[str, str], what: str) -> dict[str, Any] | None:
        """Rows with plausible times under our names, the physical GPU added."""
        names = _WHERE_AND_WHEN | more
        found = self._source.find(table)
        read = self._source.read(found, {column: INT for column in names}, _ALWAYS_THERE)
        if read is None:
            return None
        for column in ("deviceId", "globalPid", "demangledName", "copyKind"):
            if column in names and read[column].null_count == len(read[column]):
                self._reading.problem(f"{what}: column {column} is missing")
        read["globalPid"] = _chunked(pid_of(read["globalPid"]))
        columns = {names[column]: values for column, values in read.items()}
        columns = plausible(self._reading, what, columns)
        columns["gpu"] = self._gpus.gpu(_whole(columns["pid"]), _whole(columns["device"]))
        return columns

    def _words(self, codes: Any, words: dict[int, str], what: str = "") -> pa.Array:
        unknown = {code for code in _whole(codes).unique().to_pylist() if code is not None}
        unknown -= set(words)
        if what and unknown:
            self._reading.problem(f"copies: unknown {what} {sorted(unknown)[:5]}")
        return pa.array([words.get(code) for code in codes.to_pylist()], pa.string())


def _whole(values: Any) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _chunked(values: Any) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
