"""The SMs are nearly full while many nodes are verified."""

from __future__ import annotations

from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding
from profiles.advisor.samples import while_serving

BUSY_SM_ACTIVE_PCT = 85.0  # our judgement: above it more work in a step takes more time
WIDE_BEAMS = 4  # our judgement: with fewer beams there is little to narrow


def busy_sms(evidence: Evidence) -> list[Finding]:
    """Find wide beams on full SMs. Only sm_active_pct counts: gpu_busy_pct says nothing of SMs."""
    metrics, config = evidence.speculated, evidence.result.config
    served = while_serving(evidence, "sm_active_pct")
    if metrics is None or config.beam_width < WIDE_BEAMS or not served:
        return []
    busiest = max(served, key=lambda tally: tally.means["sm_active_pct"])
    mean = busiest.means["sm_active_pct"]
    if mean <= BUSY_SM_ACTIVE_PCT:
        return []
    half = config.beam_width // 2
    return [
        Finding(
            rule="busy_sms",
            severity="info",
            title=f"The SMs are nearly full with beam_width {config.beam_width}: "
            "more nodes are no longer free.",
            evidence=[
                f"sm_active_pct = {mean:.1f} % on {busiest.source}, mean of {busiest.samples} "
                f"samples while the trial served (over {BUSY_SM_ACTIVE_PCT:.0f} %)",
                f"tree_nodes_mean = {metrics.tree_nodes_mean:.1f} nodes per request and step, "
                f"up to {config.batch_size} requests in a step",
            ],
            causes=[
                "verifying the tree keeps the SMs busy; an active SM has a warp resident and need "
                "not be computing, so this alone does not say that arithmetic is the limit"
            ],
            next_experiment="Measure narrower beams at the same draft_len and batch_size: they "
            "verify fewer nodes for nearly the same acceptance_length.",
            knobs={"beam_width": sorted({half, max(1, half // 2)})},
        )
    ]
