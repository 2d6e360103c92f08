"""The records every engine yields and every run keeps on disk.

Two kinds live here. `StepRecord` and `RequestRecord` are produced in the engine's inner loop and
are plain slotted dataclasses. Everything written as JSON is a strict pydantic model: unknown
fields are refused, NaN and Infinity cannot be written, a missing number is null with a reason.

Times: `*_s` are seconds on the engine's own monotonic clock, `*_ms` durations in milliseconds.
"""

from profiles.records.base import Record
from profiles.records.config import (
    LONGEST_DRAFT,
    DrafterPrecision,
    KVCacheDtype,
    Precision,
    TrialConfig,
    WorkloadSpec,
)
from profiles.records.measures import (
    DeviceLimits,
    EnergyUse,
    MemorySplit,
    ModelShape,
    PairedRound,
    Percentiles,
    PhaseTime,
    ServeMetrics,
    Speedup,
    StepAnatomy,
    TextCheck,
    TimeShare,
)
from profiles.records.run import GpuInfo, Hardware, RunRecord
from profiles.records.serving import STEP_PHASES, FinishReason, RequestRecord, StepRecord
from profiles.records.trial import ProfilerName, TrialProgress, TrialResult, TrialState

__all__ = [
    "LONGEST_DRAFT",
    "STEP_PHASES",
    "DeviceLimits",
    "DrafterPrecision",
    "EnergyUse",
    "FinishReason",
    "GpuInfo",
    "Hardware",
    "KVCacheDtype",
    "MemorySplit",
    "ModelShape",
    "PairedRound",
    "Percentiles",
    "PhaseTime",
    "Precision",
    "ProfilerName",
    "Record",
    "RequestRecord",
    "RunRecord",
    "ServeMetrics",
    "Speedup",
    "StepAnatomy",
    "StepRecord",
    "TextCheck",
    "TimeShare",
    "TrialConfig",
    "TrialProgress",
    "TrialResult",
    "TrialState",
    "WorkloadSpec",
]
