"""What is measured of a trial: the parts of its result."""

from __future__ import annotations

from typing import Literal

from profiles.records.base import Record


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
