"""Telemetry of the time in which the trial itself served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from profiles.advisor.evidence import Evidence
from profiles.anatomy import step_total_ms
from profiles.telemetry.columns import HOST, HOST_NAMES

if TYPE_CHECKING:
    import pandas as pd

MIN_SAMPLES = 10  # our judgement: one second at the sampler's 10 Hz
ONCE_A_SECOND = frozenset({"gpu_processes", "foreign_processes"})  # one sample of these counts
WATCHED = (
    "sm_active_pct",
    "dram_active_pct",
    "tensor_active_pct",
    "throttle_reasons",
    "foreign_processes",
    "host_cpu_pct",
    "process_cpu_pct",
)


def while_serving(evidence: Evidence, *columns: str) -> dict[str, pd.DataFrame]:
    """By source, the samples taken during the trial's steps in which no column is null.

    Loading and the baseline's rounds are left out. A sample averages over the time since the one
    before, so the first of a round may hold a little of what ran before. A source with fewer than
    `MIN_SAMPLES` is left out, unless the columns are read once a second.
    """
    telemetry, steps = evidence.telemetry, evidence.steps
    if telemetry is None or steps is None or steps.empty or not set(columns) <= set(telemetry):
        return {}
    steps = steps.sort_values("start_s")
    starts = steps["start_s"].to_numpy(dtype=np.float64)
    ends = starts + step_total_ms(steps) / 1e3
    rows = telemetry.dropna(subset=list(columns))
    t_s = rows["t_s"].to_numpy(dtype=np.float64)
    last = np.searchsorted(starts, t_s, side="right") - 1
    served = rows[(last >= 0) & (t_s <= ends[np.maximum(last, 0)])]
    return {
        str(source): group
        for source, group in served.groupby("source")
        if len(group) >= (1 if ONCE_A_SECOND.issuperset(columns) else MIN_SAMPLES)
    }


def mean_while_serving(evidence: Evidence, column: str) -> tuple[str, float, int] | None:
    """Source, mean and number of samples of the source where `column` is highest, or None."""
    means = [
        (source, float(rows[column].mean()), len(rows))
        for source, rows in while_serving(evidence, column).items()
    ]
    return max(means, key=lambda mean: mean[1], default=None)


def unseen(evidence: Evidence) -> dict[str, str]:
    """Telemetry columns that no rule could judge, each with the reason."""
    return {
        column: _reason(evidence, column)
        for column in WATCHED
        if not while_serving(evidence, column)
    }


def _reason(evidence: Evidence, column: str) -> str:
    if evidence.telemetry is None or evidence.telemetry.empty:
        return "; ".join(evidence.reasons.notices) or "no telemetry was recorded"
    if evidence.steps is None or evidence.steps.empty:
        return "the trial's steps were not recorded, so its time cannot be told from the baseline's"
    given = {by[column].reason for by in evidence.reasons.columns.values() if column in by}
    if given:
        return "; ".join(sorted(given))
    sources = set(evidence.telemetry["source"])
    if column not in HOST_NAMES and sources <= {HOST}:
        return "; ".join(evidence.reasons.notices) or "no GPU was sampled"
    return f"fewer than {MIN_SAMPLES} samples while the trial served"
