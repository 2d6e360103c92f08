"""A trial on disk: how far it has come, and what it gave."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from profiles.records.base import Record
from profiles.records.config import TrialConfig, WorkloadSpec
from profiles.records.measures import (
    DeviceLimits,
    EnergyUse,
    MemorySplit,
    ModelShape,
    PairedRound,
    ServeMetrics,
    Speedup,
    StepAnatomy,
    TextCheck,
)

ProfilerName = Literal["nsys", "ncu", "torch"]


class TrialState(StrEnum):
    """Life of a trial on disk."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETE = "complete"
    INFEASIBLE = "infeasible"  # measured, but over a limit
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class TrialProgress(Record):
    """`trials/<n>/progress.json`: how far a trial has come, for those who watch."""

    fraction: Annotated[float, Field(ge=0.0, le=1.0)]
    doing: str


class TrialResult(Record):
    """`trials/<n>/result.json`: everything that one trial measured, or why it did not."""

    number: int
    state: TrialState
    config: TrialConfig
    config_hash: str
    workload: WorkloadSpec
    device: str | None = None
    precision: str | None = None
    compute: str | None = None  # how the precision is computed on this device
    profiler: ProfilerName | None = None  # it was profiled: no time is a result
    metrics: ServeMetrics | None = None
    baseline: ServeMetrics | None = None
    speedup: Speedup | None = None
    rounds: list[PairedRound] = []
    text: TextCheck | None = None
    memory: MemorySplit | None = None
    memory_predicted: MemorySplit | None = None  # told before anything was loaded
    anatomy: StepAnatomy | None = None
    baseline_anatomy: StepAnatomy | None = None
    shape: ModelShape | None = None
    limits: DeviceLimits | None = None
    energy: EnergyUse | None = None
    prepare_s: float | None = None
    started_at: str
    finished_at: str | None = None
    error: str | None = None
    violations: list[str] = []  # limits that were broken, in words
