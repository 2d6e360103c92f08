"""Telemetry of the time in which the trial itself served."""

from __future__ import annotations

from profiles.advisor.evidence import Evidence
from profiles.served_telemetry import Tally
from profiles.telemetry.columns import HOST, HOST_NAMES

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


def while_serving(evidence: Evidence, *columns: str) -> list[Tally]:
    """By source, the samples taken during the trial's steps in which no column is null.

    A source with fewer than `MIN_SAMPLES` is left out, unless the columns are read once a second.
    """
    least = 1 if ONCE_A_SECOND.issuperset(columns) else MIN_SAMPLES
    served = evidence.served
    return [tally for tally in served.of(*columns) if tally.samples >= least] if served else []


def unseen(evidence: Evidence) -> dict[str, str]:
    """Telemetry columns that no rule could judge, each with the reason."""
    return {
        column: _reason(evidence, column)
        for column in WATCHED
        if not while_serving(evidence, column)
    }


def _reason(evidence: Evidence, column: str) -> str:
    if evidence.served is None or not evidence.served.sources:
        return "; ".join(evidence.reasons.notices) or "no telemetry was recorded"
    if evidence.steps is None or evidence.steps.empty:
        return "the trial's steps were not recorded, so its time cannot be told from the baseline's"
    given = {by[column].reason for by in evidence.reasons.columns.values() if column in by}
    if given:
        return "; ".join(sorted(given))
    if column not in HOST_NAMES and evidence.served.sources == [HOST]:
        return "; ".join(evidence.reasons.notices) or "no GPU was sampled"
    return f"fewer than {MIN_SAMPLES} samples while the trial served"
