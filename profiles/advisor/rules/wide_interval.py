"""The speed-up is not known well enough."""

from __future__ import annotations

from profiles.advisor import cite
from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding
from profiles.records import Speedup, TrialResult

WIDE = 0.10  # our judgement: ci95 wider than 10 % of the speed-up cannot tell close configs apart
FEWEST_ROUNDS = 8  # our judgement; the tuner cuts a workload into at most so many


def wide_interval(evidence: Evidence) -> list[Finding]:
    """Find a speed-up from one round, or with a wide interval, and how many requests would help."""
    speedup, result = evidence.result.speedup, evidence.result
    if speedup is None or evidence.speculated is None:
        return []
    low, high = speedup.ci95
    width = (high - low) / speedup.speedup
    if speedup.rounds > 1 and width <= WIDE:
        return []
    requests = _requests_needed(result, speedup, width)
    if speedup.rounds == 1:
        title = "The speed-up rests on one round: its uncertainty is unknown."
    elif low <= 1 <= high:
        title = "Whether speculation pays is open: the interval of the speed-up holds 1."
    else:
        title = "The speed-up is known only roughly."
    known = speedup.rounds > 1
    return [
        Finding(
            rule="wide_interval",
            severity="warning" if not known or low <= 1 <= high else "info",
            title=title,
            evidence=[
                cite.speedup(speedup)
                + (f": {width:.1%} wide, wanted at most {WIDE:.0%}" if known else ""),
                f"{result.workload.requests} requests at batch_size {result.config.batch_size}",
            ],
            causes=["rounds differ too much for their number, by their prompts or the host"]
            if known
            else ["one round leaves nothing to resample"],
            next_experiment=f"Measure again with about {requests} requests"
            + (": the interval narrows with the square root of their number." if known else "."),
            knobs={"requests": [requests]},
        )
    ]


def _requests_needed(result: TrialResult, speedup: Speedup, width: float) -> int:
    """Enough for `FEWEST_ROUNDS` full batches, and for the wanted width by the square-root law."""
    full_rounds = FEWEST_ROUNDS * result.config.batch_size
    if speedup.rounds == 1:
        return max(full_rounds, 2 * result.workload.requests)
    return max(full_rounds, round(result.workload.requests * (width / WIDE) ** 2))
