"""The one result of every importer: normalised tables and their summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from profiles.nsight.busy import busy_per_gpu
from profiles.nsight.reading import Reading
from profiles.nsight.summary import CaptureSummary, MetricRange, Note, State
from profiles.nsight.totals import add_totals

_EVENTS = (
    "kernels",
    "graph_spans",
    "copies",
    "api_calls",
    "ranges",
    "gpu_metrics",
    "launch_metrics",
    "kernel_totals",
    "copy_totals",
    "api_totals",
    "range_totals",
    "range_kernels",
)
_REASONS = {
    "kernels": "no kernels were recorded",
    "kernel_time_ns": "no durations of kernels were recorded",
    "kernels_in_graphs": "no kernel names a node of a CUDA graph",
    "graph_spans": "no CUDA graph was traced as a whole",
    "graph_time_ns": "no CUDA graph was traced as a whole",
    "gpu_busy": "no GPU work with times was recorded",
    "copies": "no copies were recorded",
    "api_calls": "no CUDA API calls were recorded",
    "ranges": "no NVTX ranges were recorded",
    "gpu_metric_rows": "no GPU metrics were recorded",
    "profiled_launches": "this is no capture of Nsight Compute",
    "duration_ns": "the file does not state how long the capture was",
    "origin_epoch_ns": "the file does not state the wall clock of its time zero",
}
_OVERLAP = 1.05  # of the busy time; less is not worth a word


@dataclass(frozen=True)
class Capture:
    """One imported file: tables by their name in `schemas.SCHEMAS`, only those with rows."""

    summary: CaptureSummary
    tables: dict[str, pa.Table]


def summarise(reading: Reading, file_format: str) -> Capture:
    """Add the totals and the summary to what an importer read."""
    add_totals(reading)
    tables = reading.tables
    state = _state(reading)
    numbers = _numbers(tables) | {
        "duration_ns": reading.duration_ns,
        "origin_epoch_ns": reading.origin_epoch_ns,
    }
    summary = CaptureSummary(
        format=file_format,
        file_name=reading.path.name,
        state=state,
        headline=_headline(state, tables, numbers),
        tool_version=reading.tool_version,
        schema_version=reading.schema_version,
        captured_by=reading.captured_by,
        gpus=reading.gpus,
        cuda_graph_mode=reading.cuda_graph_mode,
        gpu_metrics=_metrics(reading),
        notes=[*reading.notes, *_overlap(numbers)],
        missing=_missing(reading, state, numbers),
        **numbers,
    )
    return Capture(summary, tables)


def _numbers(tables: dict[str, pa.Table]) -> dict[str, Any]:
    kernels, kernel_time = _kernel_numbers(tables)
    return {
        "kernels": kernels,
        "kernel_time_ns": kernel_time,
        "kernels_in_graphs": _in_graphs(tables),
        "graph_spans": _rows(tables, "graph_spans"),
        "graph_time_ns": _sum(tables, "graph_spans", "duration_ns"),
        "gpu_busy": busy_per_gpu(tables),
        "copies": _rows(tables, "copies") or _sum(tables, "copy_totals", "count"),
        "api_calls": _rows(tables, "api_calls") or _sum(tables, "api_totals", "instances"),
        "ranges": _rows(tables, "ranges") or _sum(tables, "range_totals", "instances"),
        "gpu_metric_rows": _rows(tables, "gpu_metrics"),
        "profiled_launches": _launches(tables),
    }


def _missing(reading: Reading, state: State, numbers: dict[str, Any]) -> dict[str, str]:
    """Why each number that is not there is not there."""
    damaged = ", or could not be read" if state == "partial" else ""
    missing = {
        name: reading.missing.get(name, _REASONS[name] + damaged)
        for name, value in numbers.items()
        if value is None
    }
    if not reading.gpus:
        missing["gpus"] = reading.missing.get("gpus", "the file lists no GPUs")
    return missing


def _overlap(numbers: dict[str, Any]) -> list[Note]:
    """Say that kernel times do not add up to busy time, where they do not by far."""
    added, busy = numbers["kernel_time_ns"], sum(gpu.busy_ns for gpu in numbers["gpu_busy"] or ())
    if not added or not busy or added <= _OVERLAP * busy:
        return []
    return [
        Note(
            level="info",
            text=f"kernels overlap: their times add up to {added / 1e6:,.1f} ms and the GPU was "
            f"busy for {busy / 1e6:,.1f} ms. A kernel that is launched while the one before it "
            "ends counts its wait for it; phases and gaps count overlap once",
        )
    ]


def _state(reading: Reading) -> State:
    if any(note.level == "problem" for note in reading.notes):
        return "partial"
    return "complete" if any(name in reading.tables for name in _EVENTS) else "empty"


def _headline(state: State, tables: dict[str, pa.Table], numbers: dict[str, Any]) -> str:
    if not any(name in tables for name in _EVENTS):
        damaged = "; parts of the file could not be read" if state == "partial" else ""
        return f"empty capture: it holds no GPU work, API calls or ranges{damaged}"
    words = {
        "kernels": "kernels",
        "graph_spans": "whole CUDA graphs",
        "copies": "copies",
        "api_calls": "API calls",
        "ranges": "NVTX ranges",
        "gpu_metric_rows": "GPU metric samples",
    }
    parts = [f"{numbers[name]:,} {what}" for name, what in words.items() if numbers[name]]
    listed = ", ".join(parts) or "no events, only totals"
    return (
        f"partial, some of the file could not be read: {listed}" if state == "partial" else listed
    )


def _rows(tables: dict[str, pa.Table], name: str) -> int | None:
    return len(tables[name]) if name in tables else None


def _sum(tables: dict[str, pa.Table], name: str, column: str) -> int | None:
    return pc.sum(tables[name][column]).as_py() if name in tables else None


def _kernel_numbers(tables: dict[str, pa.Table]) -> tuple[int | None, int | None]:
    if "kernels" in tables:
        return len(tables["kernels"]), _sum(tables, "kernels", "duration_ns")
    return _sum(tables, "kernel_totals", "instances"), _sum(tables, "kernel_totals", "total_ns")


def _in_graphs(tables: dict[str, pa.Table]) -> int | None:
    """None where no kernel has a node: files that never name nodes look the same."""
    if "kernels" not in tables:
        return None
    nodes = tables["kernels"]["graph_node_id"]
    return len(nodes) - nodes.null_count or None


def _launches(tables: dict[str, pa.Table]) -> int | None:
    if "launch_metrics" not in tables:
        return None
    return pc.count_distinct(tables["launch_metrics"]["launch_id"]).as_py()


def _metrics(reading: Reading) -> list[MetricRange]:
    if "gpu_metrics" not in reading.tables:
        return []
    table = reading.tables["gpu_metrics"]
    aggregations = [("value", "count"), ("value", "min"), ("value", "mean"), ("value", "max")]
    grouped = table.group_by(["gpu", "metric"]).aggregate([*aggregations, ("gpu", "count")])
    return [
        MetricRange(
            gpu=row["gpu"],
            metric=row["metric"],
            source_name=reading.metric_sources.get(row["metric"], row["metric"]),
            rows=row["gpu_count"],
            min=row["value_min"],
            mean=row["value_mean"],
            max=row["value_max"],
        )
        for row in grouped.to_pylist()
    ]
