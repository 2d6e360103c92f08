"""Wide beams that are nearly the same beam."""

from __future__ import annotations

from profiles.advisor import cite
from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding
from profiles.records import ServeMetrics

# Our judgement. 0: beams differ only in their last token; 1: no two share a prefix. Trees of the
# published drafters are 30 to 60 % smaller than their beams (ReDrafter paper), far above this.
COLLAPSED_SPREAD = 0.10
SAME_ACCEPTANCE = 0.98  # our judgement: a narrower config this close accepts the same


def collapsing_beams(evidence: Evidence) -> list[Finding]:
    """Find beams whose tree is hardly larger than that of beams differing in one token."""
    metrics, config = evidence.speculated, evidence.result.config
    if metrics is None or metrics.beam_diversity is None or evidence.is_shape_only:
        return []
    if config.adaptive:  # its trees belong to drafts of several lengths
        return []
    width, draft_len = config.beam_width, config.draft_len
    room = (width - 1) * (draft_len - 1)
    if room == 0:
        return []
    fewest = draft_len + width - 1  # distinct beams that share all but their last token
    spread = (metrics.tree_nodes_mean - 1 - fewest) / room
    if spread >= COLLAPSED_SPREAD:
        return []
    floor = fewest / (width * draft_len)
    return [
        Finding(
            rule="collapsing_beams",
            severity="warning",
            title=f"The {width} beams are nearly one: they share almost every prefix.",
            evidence=[
                f"beam_diversity = {metrics.beam_diversity:.2f}, where beams that differ only in "
                f"their last token give {floor:.2f}",
                f"tree_nodes_mean = {metrics.tree_nodes_mean:.1f} nodes of at most "
                f"{1 + width * draft_len}",
                *_narrower(evidence, metrics),
            ],
            causes=[
                "the drafter is so sure of its first tokens that all beams begin alike; further "
                "beams then only vary the end, which is rarely reached"
            ],
            next_experiment="Measure narrower beams at the same draft_len: if acceptance_length "
            "stays, the extra beams only cost time.",
            knobs={"beam_width": sorted({1, max(1, width // 4), max(1, width // 2)})},
        )
    ]


def _narrower(evidence: Evidence, metrics: ServeMetrics) -> list[str]:
    """Siblings with fewer beams that accept as much."""
    return [
        f"trial {other.number} with beam_width {other.config.beam_width} accepts the same: "
        f"{cite.acceptance_length(other.metrics, other.config.draft_len)}"
        for other in evidence.alike_but_for("beam_width")
        if other.metrics is not None
        and other.config.beam_width < evidence.result.config.beam_width
        and other.metrics.acceptance_length >= SAME_ACCEPTANCE * metrics.acceptance_length
    ]
