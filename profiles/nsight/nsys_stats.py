"""Output of `nsys stats`: CSV, JSON or printed tables, under their old and new report names.

Summaries have no start times, so there is no busy time; a trace report has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from profiles.errors import UnreadableProfile
from profiles.nsight import stats_sums, stats_traces
from profiles.nsight.content import note_open_end, read_text
from profiles.nsight.reading import Reading
from profiles.nsight.stats_tables import StatsTable, stats_tables

_LEFT_OUT = "a table of a report that is not read was left out"
_OTHER_REPORTS = re.compile(
    r"osrt|open(mp|acc|gl)|khr|vulkan|dx1|wddm|mpi|ucx|um_|umcpu|network|nvvideo|syscall"
)
_READERS: dict[str, Callable[[Reading, StatsTable], None]] = {
    "cuda_gpu_kern_sum": stats_sums.read_kernel_sum,
    "cuda_api_sum": stats_sums.read_api_sum,
    "cuda_gpu_mem_sum": stats_sums.read_copy_sum,
    "nvtx_sum": stats_sums.read_nvtx_sum,
    "nvtx_kern_sum": stats_sums.read_nvtx_kernels,
    "cuda_gpu_trace": stats_traces.read_gpu_trace,
    "cuda_api_trace": stats_traces.read_api_trace,
    "nvtx_pushpop_trace": stats_traces.read_nvtx_trace,
}


def read(reading: Reading) -> None:
    """Read every report in the file. Raises UnreadableProfile when there is none."""
    text = read_text(reading)
    note_open_end(reading, text)
    found = 0
    for table in stats_tables(reading, text):
        kind = _kind(table)
        if kind is None:
            reading.warn(f"{_LEFT_OUT} ({', '.join(table.cells)[:200]})")
            continue
        found += 1
        if table.rows:
            _READERS[kind](reading, table)
        if table.unread:
            reading.problem(f"{table.unread} numbers of {kind} could not be read")
    if not found and not any(note.text.startswith("nsys stats: ") for note in reading.notes):
        others = [note.text for note in reading.notes if note.text.startswith(_LEFT_OUT)]
        raise UnreadableProfile(
            reading.path,
            others[0] if others else "no table of `nsys stats` could be found in it",
            "Write one: nsys stats --report cuda_gpu_kern_sum --format csv REPORT.nsys-rep.",
        )
    reading.missing["gpu_busy"] = (
        "summaries have no start times: give the .sqlite export, or `nsys stats` cuda_gpu_trace"
    )


def _kind(table: StatsTable) -> str | None:
    """Which report a table is, by its columns; other reports have the same and are named."""
    if table.report and _OTHER_REPORTS.search(table.report):
        return None
    if table.has("nvtx range", "kernel name"):
        return "nvtx_kern_sum"
    if table.has("start", "duration", "grdx", "name"):
        return "cuda_gpu_trace"
    if table.has("start", "duration", "lvl", "name"):
        return "nvtx_pushpop_trace"
    if table.has("start", "duration", "result", "name"):
        return "cuda_api_trace"
    if table.has("total time", "range"):
        return "nvtx_sum"
    if table.has("total time", "instances", "name"):
        return "cuda_gpu_kern_sum"
    if table.has("total time", "num calls", "name"):
        return "cuda_api_sum" if _are_cuda(table) else None
    if table.has("operation") and "category" not in table.cells:
        return "cuda_gpu_mem_sum"
    return None


def _are_cuda(table: StatsTable) -> bool:
    return any((name or "").startswith("cu") for name in table.text("name"))
