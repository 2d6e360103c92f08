"""Speculation is slower than none at this batch size."""

from __future__ import annotations

from profiles.advisor import cite
from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding
from profiles.records import Speedup, TrialResult


def useless_speculation(evidence: Evidence) -> list[Finding]:
    """Find a speed-up whose whole interval is at or below 1, and the batch size where it turns."""
    metrics, speedup, config = evidence.speculated, evidence.result.speedup, evidence.result.config
    if metrics is None or speedup is None:
        return []
    if speedup.rounds < 2 or speedup.ci95[1] > 1:  # one round gives no interval
        return []
    share = metrics.time_share
    return [
        Finding(
            rule="useless_speculation",
            severity="warning",
            title=f"Speculation does not pay at batch_size {config.batch_size}.",
            evidence=[
                cite.speedup(speedup),
                cite.acceptance_length(metrics, config.draft_len),
                f"tree_nodes_mean = {metrics.tree_nodes_mean:.1f} nodes verified per request and "
                f"step, time_share.draft = {share.draft:.1%}, verify = {share.verify:.1%}",
                *_crossover(evidence),
            ],
            causes=[
                "drafting and verifying the tree cost more than the accepted tokens save; the "
                "larger the batch, the fewer nodes are free"
            ],
            next_experiment="Serve without speculation (draft_len 0) at this batch_size, or "
            "measure narrower beams and a shorter draft.",
            knobs={
                "beam_width": sorted({1, max(1, config.beam_width // 2)}),
                "draft_len": sorted({1, max(1, config.draft_len // 2)}),
            },
        )
    ]


def _crossover(evidence: Evidence) -> list[str]:
    """Name the nearest smaller batch size at which the same shape is surely faster."""
    batch = evidence.result.config.batch_size
    faster: list[tuple[int, TrialResult, Speedup]] = [
        (other.config.batch_size, other, other.speedup)
        for other in evidence.alike_but_for("batch_size")
        if other.speedup is not None
        and other.speedup.rounds > 1
        and other.speedup.ci95[0] > 1
        and other.config.batch_size < batch
    ]
    if not faster:
        return []
    size, other, speedup = max(faster, key=lambda found: found[0])
    return [
        f"trial {other.number} with the same shape at batch_size {size}: {cite.speedup(speedup)}; "
        f"the crossover lies between batch_size {size} and {batch}"
    ]
