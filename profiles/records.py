"""The records every engine yields and every run keeps on disk.

Two kinds live here. `StepRecord` and `RequestRecord` are produced in the engine's inner loop and
are plain slotted dataclasses. Everything written as JSON is a strict pydantic model: unknown
fields are refused, NaN and Infinity cannot be written, a missing number is null with a reason.

Times: `*_s` are seconds on the engine's own monotonic clock, `*_ms` durations in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Precision = Literal["fp32", "fp16", "bf16", "fp8", "int8_sq", "int4_awq"]
KVCacheDtype = Literal["auto", "fp8"]
ProfilerName = Literal["nsys", "ncu", "torch"]
FinishReason = Literal["stop", "length"]
LONGEST_DRAFT = 16
STEP_PHASES = ("prefill", "draft", "tree", "verify", "accept", "host")
"""Where a step's wall time goes, in the order in which a step does it."""


@dataclass(slots=True)
class StepRecord:
    """One engine step: a draft, one forward of the base model, acceptance.

    A step serves `context_requests` prompts being read for the first time and any number of
    generation requests; the four lists have one entry per generation request, in batch order.

    `prefill_ms` reads the prompts that join, `tree_ms` merges beams into the tree and `host_ms` is
    what the other phases leave of the step's wall time. An engine that cannot tell prefill from
    verify, or tree from draft, leaves them 0 and counts that time there.
    """

    index: int
    start_s: float
    draft_ms: float
    verify_ms: float
    accept_ms: float
    host_ms: float
    context_requests: int = 0
    context_tokens: int = 0
    request_ids: list[str] = field(default_factory=list)
    tree_nodes: list[int] = field(default_factory=list)  # root included
    accepted: list[int] = field(default_factory=list)  # by the verifier, before any cut
    committed: list[int] = field(default_factory=list)  # reached the user, after stop and length
    kv_used_bytes: int = 0
    prefill_ms: float = 0.0
    tree_ms: float = 0.0
    draft_len: int | None = None  # tokens drafted per beam; None: as many as the config says

    @property
    def phases_ms(self) -> tuple[float, ...]:
        """Milliseconds of each of `STEP_PHASES`."""
        return (
            self.prefill_ms,
            self.draft_ms,
            self.tree_ms,
            self.verify_ms,
            self.accept_ms,
            self.host_ms,
        )

    @property
    def total_ms(self) -> float:
        """Wall time of the whole step in milliseconds."""
        return sum(self.phases_ms)


@dataclass(slots=True)
class RequestRecord:
    """One finished request. Emission k delivered `emission_tokens[k]` tokens at `emission_s[k]`."""

    id: str
    category: str
    prompt_tokens: int
    output_token_ids: list[int]
    finish_reason: FinishReason
    arrival_s: float
    emission_s: list[float]
    emission_tokens: list[int]

    @property
    def output_tokens(self) -> int:
        """Number of tokens that reached the user."""
        return len(self.output_token_ids)


class Record(BaseModel):
    """Base of every JSON record: strict, frozen, no unknown fields, no NaN."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=()
    )


class TrialConfig(Record):
    """What one trial runs. `draft_len = 0` is the autoregressive baseline.

    `draft_len` counts drafted tokens only, not the true token that the base model already chose
    (TensorRT-LLM's `draft_len_per_beam`; Apple's `beam_length` is `draft_len + 1`). With
    `draft_len_min` every step drafts as many as pays by what the running requests accepted lately,
    between the two; while more than `speculate_up_to` requests run, none are drafted.
    """

    engine: str = "redrafter"
    model: str = "smollm2-135m"
    drafter: str | None = None
    draft_vocab_size: Annotated[int, Field(ge=1)] | None = None  # None: the drafter's own
    device: str = "auto"
    quantization: Precision | None = None  # None: the device's default precision
    kv_cache_dtype: KVCacheDtype = "auto"  # auto: as activations are
    beam_width: Annotated[int, Field(ge=1, le=64)] = 4
    draft_len: Annotated[int, Field(ge=0, le=LONGEST_DRAFT)] = 4
    draft_len_min: Annotated[int, Field(ge=1)] | None = None  # None: every step drafts draft_len
    speculate_up_to: Annotated[int, Field(ge=1)] | None = None  # None: however many requests run
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 1

    @field_validator("draft_len_min")
    @classmethod
    def _below_draft_len(cls, value: int | None, info: ValidationInfo) -> int | None:
        longest = info.data.get("draft_len")  # missing where it is refused itself
        if value is not None and longest is not None and value > longest:
            raise ValueError(f"is more than draft_len, {longest}: lower it or leave it out")
        return value

    @field_validator("speculate_up_to")
    @classmethod
    def _speculates(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("draft_len") == 0:
            raise ValueError("nothing is drafted with draft_len 0: raise that or leave this out")
        return value

    @property
    def adaptive(self) -> bool:
        """Whether steps may draft fewer than `draft_len` tokens."""
        return self.draft_len_min is not None or self.speculate_up_to is not None

    def baseline(self) -> TrialConfig:
        """Return the autoregressive twin: same model, precision and batch, no speculation."""
        nothing = dict.fromkeys(
            ("drafter", "draft_vocab_size", "draft_len_min", "speculate_up_to"), None
        )
        return self.model_copy(update={**nothing, "beam_width": 1, "draft_len": 0})

    def describe(self) -> str:
        """Name the config in a few words."""
        rest = f"batch {self.batch_size}" + (f", {self.quantization}" if self.quantization else "")
        if self.kv_cache_dtype != "auto":
            rest += f", {self.kv_cache_dtype} KV cache"
        if self.draft_len == 0:
            return f"no speculation, {rest}"
        if self.drafter is not None:
            rest += f", {_last_part(self.drafter)}"
        if self.draft_vocab_size is not None:
            rest += f", draft vocabulary {self.draft_vocab_size}"
        if self.speculate_up_to is not None:
            rest += f", no drafts for more than {self.speculate_up_to} at once"
        least = "" if self.draft_len_min is None else f"{self.draft_len_min} to "
        return f"beam width {self.beam_width}, draft length {least}{self.draft_len}, {rest}"


def _last_part(drafter: str) -> str:
    """Name a drafter without the folders that lead to it."""
    kind, colon, path = drafter.rpartition(":")
    return f"{kind}{colon}{PurePath(path).name}"


class WorkloadSpec(Record):
    """Which prompts are served and how."""

    workload: str = "builtin"
    requests: Annotated[int, Field(ge=1)] = 16
    max_new_tokens: Annotated[int, Field(ge=2)] = 64  # 1 would be all prompt, no generation
    temperature: Annotated[float, Field(ge=0.0, le=5.0)] = 0.0
    seed: Annotated[int, Field(ge=0)] = 0


class Percentiles(Record):
    """Percentiles of one latency in milliseconds over requests (ITL: over gaps)."""

    p50: float
    p95: float
    p99: float
    mean: float


class MemorySplit(Record):
    """Bytes held by the engine; `rest_bytes` is what none of the other three explains."""

    weights_bytes: int
    drafter_bytes: int
    kv_bytes: int
    rest_bytes: int | None
    peak_bytes: int | None
    reason: str | None = None  # why a null is null


class TimeShare(Record):
    """Fractions of step time; they sum to 1."""

    draft: float
    verify: float
    accept: float
    host: float
    prefill: float = 0.0
    tree: float = 0.0


class ServeMetrics(Record):
    """What one configuration did to the workload, warm-up excluded.

    acceptance_length = committed tokens / steps, over generation steps, one step counted for each
    request it served. path_acceptance_rate = (acceptance_length - 1) / draft_len_mean, the mean
    over the same steps of what each drafted per beam.
    tree_acceptance_rate = accepted draft tokens / (tree_nodes - 1). position_acceptance[k] =
    P(accepted at position k+1 | it was drafted, and accepted at every position before it).
    beam_diversity = (tree_nodes - 1) / (beam_width * draft_len_mean). Null where nothing is
    drafted.
    """

    requests: int
    output_tokens: int
    duration_s: float
    output_tokens_per_s: float
    output_tokens_per_s_per_user: float
    steps: int
    committed_tokens: int
    acceptance_length: float
    acceptance_length_by_category: dict[str, float]
    path_acceptance_rate: float | None
    draft_len_mean: float | None = None  # null in records that are older
    tree_acceptance_rate: float | None
    position_acceptance: list[float | None]
    tree_nodes_mean: float
    beam_diversity: float | None
    ttft_ms: Percentiles
    tpot_ms: Percentiles | None  # null when every request gave a single token
    itl_ms: Percentiles | None
    e2e_ms: Percentiles
    time_share: TimeShare
    step_ms_mean: float


class PhaseTime(Record):
    """Milliseconds of one phase in the steps of a serving.

    The mean is over all steps, the percentiles over those that had the phase at all: few steps
    read a prompt. `share` is of the serving's wall time.
    """

    mean_ms: float
    p50_ms: float
    p95_ms: float
    share: float


class StepAnatomy(Record):
    """Where the wall time of a serving went, step by step.

    `phases` has one entry for each of `STEP_PHASES`. `gaps` is the time before each step in which
    no step ran: since the step before, or since the first arrival. `wall_ms` runs from the first
    arrival to the last emission and is not read from the steps; accounted_share = (phases + gaps)
    / wall_ms, 1 when the step records hold the whole story.
    """

    steps: int
    wall_ms: float
    phases: dict[str, PhaseTime]
    gaps: PhaseTime
    accounted_share: float


class ModelShape(Record):
    """What one pass of the base model reads and computes.

    `weights_read_bytes` is read by every pass: all but an embedding table of its own, of which a
    pass reads one row a token. `linear_parameters` are those of the matrix products, LM head
    included.
    """

    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    linear_parameters: int
    weights_read_bytes: int
    embedding_row_bytes: int
    kv_bytes_per_token: int


class DeviceLimits(Record):
    """What the device was measured to do at best, with nothing else to do.

    `matmul` names the arithmetic of `matmul_flop_per_s`. A null has its reason.
    """

    device: str
    matmul: str
    read_bytes_per_s: float | None
    matmul_flop_per_s: float | None
    reason: str | None = None


class PairedRound(Record):
    """One round of the same prompts through the baseline and through the trial's config."""

    round: int
    order: Literal["baseline_first", "trial_first"]
    baseline_s: float
    baseline_tokens: int
    trial_s: float
    trial_tokens: int


class Speedup(Record):
    """Paired ratio of output tokens/s to the baseline, with a bootstrap interval over rounds."""

    speedup: float
    ci95: tuple[float, float]
    rounds: int


class TextCheck(Record):
    """Greedy text of the trial against the baseline of the same run."""

    requests: int
    equal: int
    first_difference: str | None = None  # request id, position and logit margin if known

    @property
    def all_equal(self) -> bool:
        """Whether every request gave the same tokens as the baseline."""
        return self.equal == self.requests


class EnergyUse(Record):
    """Energy of the measured window, or the reason there is none."""

    energy_mj: float | None
    energy_mj_per_token: float | None
    reason: str | None = None


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


class GpuInfo(Record):
    """One GPU as NVML names it."""

    uuid: str
    name: str
    memory_total_bytes: int | None
    driver: str | None


class Hardware(Record):
    """Fingerprint of the host a run was measured on."""

    cpu: str
    cores: int
    memory_total_bytes: int
    gpus: list[GpuInfo] = []
    gpu_reason: str | None = None  # why there are none


class RunRecord(Record):
    """`run.json`: what was asked for, and where it was measured."""

    run_id: str
    kind: Literal["run", "sweep"]
    created_at: str
    spec: dict[str, object]
    versions: dict[str, str]
    git_sha: str | None
    hardware: Hardware
    seed: int
    workload_hash: str
