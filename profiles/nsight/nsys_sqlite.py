"""Nsight Systems SQLite exports, schemas of 2019 to 2026."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from profiles.errors import UnreadableProfile
from profiles.nsight.nsys_gpu_work import GpuWork
from profiles.nsight.nsys_host import read_api_calls, read_diagnostics, read_ranges
from profiles.nsight.nsys_metrics import read_gpu_metrics
from profiles.nsight.nsys_strings import Strings
from profiles.nsight.nsys_target import read_target
from profiles.nsight.reading import Reading
from profiles.nsight.sqlite_source import SqliteSource

_SIGNS = ("STRINGIDS", "META_DATA_EXPORT", "EXPORT_META_DATA", "CUPTI_ACTIVITY_KIND_KERNEL")


def read(reading: Reading) -> None:
    """Read the file itself. Raises UnreadableProfile."""
    read_export(reading, reading.path)


def read_export(reading: Reading, exported: Path) -> None:
    """Read every table that we know of an export. Raises UnreadableProfile."""
    with SqliteSource(reading, exported) as source:
        if not source.find(*_SIGNS):
            raise UnreadableProfile(
                reading.path,
                "an SQLite file, but no export of Nsight Systems",
                "Export one: nsys export --type sqlite REPORT.nsys-rep.",
            )
        gpus = read_target(source, reading)
        strings = Strings(source, reading)
        GpuWork(source, reading, strings, gpus).read()
        read_api_calls(source, reading, strings)
        read_ranges(source, reading, strings)
        read_diagnostics(source, reading)
        read_gpu_metrics(source, reading)
    _explain(reading)


def _explain(reading: Reading) -> None:
    spans = reading.tables.get("graph_spans")
    kernels = reading.tables.get("kernels")
    if spans is not None:
        reading.missing["kernels_in_graphs"] = "CUDA graphs were traced as a whole"
        reading.warn(
            f"{len(spans)} CUDA graph launches were traced as a whole: the kernels inside them are "
            "hidden, only their time is known. To see them: nsys profile --cuda-graph-trace=node"
        )
    if kernels is None and spans is None and _launched(reading):
        reading.problem(
            "the program launched kernels, but the report has none: CUDA activity was not "
            "collected (driver newer than Nsight Systems, or another profiler was attached)"
        )


def _launched(reading: Reading) -> bool:
    calls = reading.tables.get("api_calls")
    if calls is None:
        return False
    names = calls["name"].combine_chunks().dictionary
    return bool(pc.any(pc.match_substring_regex(names, "^cu.*Launch")).as_py())
