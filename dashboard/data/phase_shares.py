"""Which phase of its steps a trial was in, moment by moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dashboard.data.coverage import Floats, covered_pct
from profiles.records import STEP_PHASES

if TYPE_CHECKING:
    import pandas as pd

MOST_BUCKETS = 400


@dataclass(frozen=True)
class PhaseShares:
    """Percent of the time between two edges that went to each phase.

    What the phases leave of 100 was outside this config's steps: loading, warm-up and the rounds of
    the baseline.
    """

    edges_s: Floats
    percents: dict[str, Floats]


def phase_shares(steps: pd.DataFrame, window: tuple[float, float]) -> PhaseShares:
    """Share out the time of `window`, on the clock of `start_s`, into buckets.

    A step does its phases in the order of `STEP_PHASES`; the records give their durations.
    """
    edges = np.linspace(window[0], window[1], MOST_BUCKETS + 1)
    spans_s = steps[[f"{phase}_ms" for phase in STEP_PHASES]].fillna(0).to_numpy(np.float64) / 1000
    ends = steps["start_s"].to_numpy(np.float64)[:, None] + np.cumsum(spans_s, axis=1)
    starts = ends - spans_s
    return PhaseShares(
        edges,
        {
            phase: covered_pct(starts[:, place], ends[:, place], edges)
            for place, phase in enumerate(STEP_PHASES)
        },
    )
