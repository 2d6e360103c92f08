"""Where the wall time of a trial went: phases of its steps, and gaps between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from profiles.records import STEP_PHASES, PhaseTime, RequestRecord, StepAnatomy, StepRecord

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Round = tuple[Sequence[StepRecord], Sequence[RequestRecord]]
"""The steps and the requests of one serving, in which nothing else ran in between."""


def step_anatomy(rounds: Sequence[Round]) -> StepAnatomy:
    """Add up what the steps of all `rounds` say, against the wall time that the requests say.

    Raises:
        ValueError: a round without steps or requests.
    """
    if not rounds or not all(steps and requests for steps, requests in rounds):
        raise ValueError("every round needs steps and requests to be taken apart")
    wall_ms = sum(_wall_ms(requests) for _, requests in rounds)
    phases_ms = np.array([step.phases_ms for steps, _ in rounds for step in steps])
    gaps_ms = np.concatenate([_gaps_ms(steps, requests) for steps, requests in rounds])
    return StepAnatomy(
        steps=len(phases_ms),
        wall_ms=wall_ms,
        phases={
            phase: _phase_time(phases_ms[:, k], wall_ms) for k, phase in enumerate(STEP_PHASES)
        },
        gaps=_phase_time(gaps_ms, wall_ms),
        accounted_share=float((phases_ms.sum() + gaps_ms.sum()) / wall_ms),
    )


def step_total_ms(steps: pd.DataFrame) -> Floats:
    """Wall time of each step, null phases (see `read_records`) left out."""
    return steps[[f"{phase}_ms" for phase in STEP_PHASES]].sum(axis=1).to_numpy(dtype=np.float64)


def _wall_ms(requests: Sequence[RequestRecord]) -> float:
    end_s = max(request.emission_s[-1] for request in requests)
    return 1e3 * (end_s - _arrival_s(requests))


def _arrival_s(requests: Sequence[RequestRecord]) -> float:
    return min(request.arrival_s for request in requests)


def _gaps_ms(steps: Sequence[StepRecord], requests: Sequence[RequestRecord]) -> Floats:
    """Time before each step since the step before it, or since the first arrival."""
    starts_s = np.array([step.start_s for step in steps])
    ends_s = starts_s + np.array([step.total_ms for step in steps]) / 1e3
    return 1e3 * (starts_s - np.concatenate(([_arrival_s(requests)], ends_s[:-1])))


def _phase_time(times_ms: Floats, wall_ms: float) -> PhaseTime:
    taken_ms = times_ms[times_ms > 0]
    p50_ms, p95_ms = np.percentile(taken_ms, (50, 95)).tolist() if len(taken_ms) else (0.0, 0.0)
    return PhaseTime(
        mean_ms=float(times_ms.mean()),
        p50_ms=p50_ms,
        p95_ms=p95_ms,
        share=float(times_ms.sum() / wall_ms),
    )
