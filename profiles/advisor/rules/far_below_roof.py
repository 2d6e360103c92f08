"""Verify takes much longer than reading and computing need."""

from __future__ import annotations

from profiles.advisor import cite
from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import NOT_SHOWN, Finding

FAR_BELOW = 0.5  # our judgement: good kernels reach well over half of a measured limit


def far_below_roof(evidence: Evidence) -> list[Finding]:
    """Find verify passes that neither memory nor arithmetic explains."""
    roof = evidence.roofline()
    if roof is None or roof.limit_share >= FAR_BELOW:
        return []
    needed_ms = roof.limit_share * roof.verify_ms
    return [
        Finding(
            rule="far_below_roof",
            severity="info",
            title=f"Verify takes {1 / roof.limit_share:.1f} times what reading and computing need: "
            "neither memory nor arithmetic is the limit.",
            evidence=[
                f"verify takes {roof.verify_ms:.2f} ms a step; at the measured limits "
                f"{needed_ms:.2f} ms would do",
                cite.limits(roof),
            ],
            causes=[
                f"{NOT_SHOWN}many small kernels, each of which costs its launch and a ramp",
                f"{NOT_SHOWN}kernels that are slow for so few rows",
            ],
            next_experiment="Record the trial with `tuner run --profile nsys` and look at launches "
            "per step and the gaps between kernels.",
        )
    ]
