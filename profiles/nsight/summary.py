"""`summary.json` of an import: what the file is, what it holds, and what it does not."""

from __future__ import annotations

from typing import Literal

from profiles.records import Record

State = Literal["complete", "partial", "empty"]
Level = Literal["info", "warning", "problem"]


class Note(Record):
    """One thing that a reader should know; a `problem` makes the capture partial."""

    level: Level
    text: str


class GpuDescription(Record):
    """One GPU that the report lists; those that were not used are listed too."""

    gpu: int
    cuda_device: int | None
    name: str | None
    uuid: str | None


class GpuBusy(Record):
    """Union of the kernel and CUDA-graph intervals of one GPU; copies are not counted.

    `window_ns` runs from the first start to the last end of that work.
    """

    gpu: int | None  # null: the capture does not say which
    device: int | None  # CUDA ordinal, where the GPU had one only
    busy_ns: int
    window_ns: int


class MetricRange(Record):
    """One sampled GPU metric; the unit ends the name."""

    gpu: int | None
    metric: str
    source_name: str  # as the tool spells it
    rows: int
    min: float | None
    mean: float | None
    max: float | None


class CaptureSummary(Record):
    """What one imported file holds. A null number has its reason under its name in `missing`."""

    format: str
    file_name: str
    state: State
    headline: str  # one sentence, for people
    tool_version: str | None = None  # of the exporter
    schema_version: str | None = None
    captured_by: str | None = None  # can be years older than the exporter
    origin_epoch_ns: int | None = None  # wall clock of time zero
    duration_ns: int | None = None  # of the whole capture
    gpus: list[GpuDescription] = []
    kernels: int | None = None
    kernel_time_ns: int | None = None  # plain sum: overlap counts twice
    kernels_in_graphs: int | None = None
    cuda_graph_mode: Literal["graph", "node"] | None = None
    graph_spans: int | None = None
    graph_time_ns: int | None = None
    gpu_busy: list[GpuBusy] | None = None
    copies: int | None = None
    api_calls: int | None = None
    ranges: int | None = None
    gpu_metric_rows: int | None = None
    gpu_metrics: list[MetricRange] = []
    profiled_launches: int | None = None  # Nsight Compute
    notes: list[Note] = []
    missing: dict[str, str] = {}
