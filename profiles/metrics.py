"""From step and request records to the numbers of a trial.

The definitions are those of `ServeMetrics`. Every rate names its numerator and denominator, and an
impossible value is refused by name: a clipped number would look like a measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiles.possible import check_requests, check_steps
from profiles.records import (
    STEP_PHASES,
    Percentiles,
    RequestRecord,
    ServeMetrics,
    StepRecord,
    TimeShare,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Generation:
    """Generation steps flattened: one entry for each request that a step served."""

    categories: list[str]
    draft_len: Ints
    tree_nodes: Ints
    accepted: Ints
    committed: Ints

    @property
    def steps(self) -> int:
        return len(self.committed)

    @property
    def acceptance_length(self) -> float:
        return float(self.committed.sum() / self.steps)


def summarize(
    steps: Sequence[StepRecord],
    requests: Sequence[RequestRecord],
    beam_width: int,
    draft_len: int,
) -> ServeMetrics:
    """Summarise one serving of the workload, warm-up already left out.

    The token that prefill chooses belongs to no generation step: it counts in `output_tokens`
    and in every latency, not in `committed_tokens`. `time_share` and `step_ms_mean` are over all
    steps, those that read prompts included.

    Raises:
        ValueError: nothing was served, no generation step ran, or a value is impossible (its
            message names the step or request, the value and the bound).
    """
    check_requests(requests)
    check_steps(steps, {request.id for request in requests}, beam_width, draft_len)
    categories = {request.id: request.category for request in requests}
    generation = _flatten(steps, categories, draft_len)
    arrival = min(request.arrival_s for request in requests)
    duration_s = max(request.emission_s[-1] for request in requests) - arrival
    output_tokens = sum(request.output_tokens for request in requests)
    length = generation.acceptance_length
    drafted = int((generation.tree_nodes - 1).sum())
    nodes_mean = float(generation.tree_nodes.mean())
    draft_len_mean = float(generation.draft_len.mean())
    return ServeMetrics(
        requests=len(requests),
        output_tokens=output_tokens,
        duration_s=duration_s,
        output_tokens_per_s=output_tokens / duration_s,
        output_tokens_per_s_per_user=_tokens_per_s_per_user(requests),
        steps=generation.steps,
        committed_tokens=int(generation.committed.sum()),
        acceptance_length=length,
        acceptance_length_by_category=_acceptance_length_by_category(generation),
        path_acceptance_rate=(length - 1) / draft_len_mean if draft_len_mean else None,
        draft_len_mean=draft_len_mean,
        tree_acceptance_rate=float(generation.accepted.sum() / drafted) if drafted else None,
        position_acceptance=_position_acceptance(generation, draft_len),
        tree_nodes_mean=nodes_mean,
        beam_diversity=(nodes_mean - 1) / (beam_width * draft_len_mean) if draft_len_mean else None,
        ttft_ms=_percentiles([r.emission_s[0] - r.arrival_s for r in requests]),
        tpot_ms=_percentiles_or_none(_tpot_s(requests)),
        itl_ms=_percentiles_or_none([gap for r in requests for gap in np.diff(r.emission_s)]),
        e2e_ms=_percentiles([r.emission_s[-1] - r.arrival_s for r in requests]),
        time_share=_time_share(steps),
        step_ms_mean=float(np.mean([step.total_ms for step in steps])),
    )


def _flatten(
    steps: Sequence[StepRecord], category_of: dict[str, str], draft_len: int
) -> _Generation:
    drafted = [draft_len if step.draft_len is None else step.draft_len for step in steps]
    generation = _Generation(
        categories=[category_of[id] for step in steps for id in step.request_ids],
        draft_len=np.repeat(drafted, [len(step.request_ids) for step in steps]),
        tree_nodes=np.array([n for step in steps for n in step.tree_nodes], dtype=np.int64),
        accepted=np.array([n for step in steps for n in step.accepted], dtype=np.int64),
        committed=np.array([n for step in steps for n in step.committed], dtype=np.int64),
    )
    if not generation.steps:
        raise ValueError("no generation step ran: acceptance_length has no denominator")
    return generation


def _acceptance_length_by_category(generation: _Generation) -> dict[str, float]:
    """Committed tokens / steps of each category that had a generation step."""
    categories = np.array(generation.categories)
    return {
        str(category): float(generation.committed[categories == category].mean())
        for category in np.unique(categories)
    }


def _position_acceptance(generation: _Generation, draft_len: int) -> list[float | None]:
    """Steps accepted at position k / steps that drafted k and accepted all before it."""
    accepted, shares = generation.accepted, list[float | None]()
    for k in range(draft_len):
        reached = int(((accepted >= k) & (generation.draft_len > k)).sum())
        shares.append(int((accepted > k).sum()) / reached if reached else None)
    return shares


def _tokens_per_s_per_user(requests: Sequence[RequestRecord]) -> float:
    """Mean over requests of output tokens / end-to-end seconds."""
    return float(np.mean([r.output_tokens / (r.emission_s[-1] - r.arrival_s) for r in requests]))


def _tpot_s(requests: Sequence[RequestRecord]) -> list[float]:
    """Seconds per output token after the first emission.

    A request whose tokens all came in one emission gives none: its pace was not observed.
    """
    return [
        (r.emission_s[-1] - r.emission_s[0]) / (r.output_tokens - 1)
        for r in requests
        if len(r.emission_s) > 1
    ]


def _time_share(steps: Sequence[StepRecord]) -> TimeShare:
    """Fractions of all step time."""
    parts = np.array([step.phases_ms for step in steps]).sum(axis=0)
    return TimeShare(**dict(zip(STEP_PHASES, (parts / parts.sum()).tolist(), strict=True)))


def _percentiles(seconds: Sequence[float]) -> Percentiles:
    """Percentiles in milliseconds, linearly interpolated as numpy does by default."""
    values: Floats = np.asarray(seconds, dtype=np.float64) * 1e3
    p50, p95, p99 = np.percentile(values, (50, 95, 99)).tolist()
    return Percentiles(p50=p50, p95=p95, p99=p99, mean=float(values.mean()))


def _percentiles_or_none(seconds: Sequence[float]) -> Percentiles | None:
    return _percentiles(seconds) if seconds else None
