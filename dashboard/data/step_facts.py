"""What the verify pass achieved, what its nodes bought and what is still free, in words."""

from __future__ import annotations

from dashboard.data.trial_facts import Fact
from dashboard.formats import missing, percent
from profiles.efficiency import Efficiency
from profiles.roofline import Roofline

GIGA, TERA = 1e9, 1e12
NOT_TRIED = "no other tree of this model and batch was measured in the run"


def roofline_facts(found: Roofline) -> list[Fact]:
    """The pass against the limits, and how many more nodes are free."""
    measured = found.free_nodes_measured
    return [
        ("Verify pass, mean", f"{found.verify_ms:.2f} ms over {found.steps:,} steps"),
        (
            "Verified at once",
            f"{found.sequences:.1f} requests of {found.tree_nodes:.1f} nodes "
            f"behind {found.context_tokens:,.0f} tokens",
        ),
        (
            "Read",
            f"{found.achieved_bytes_per_s / GIGA:,.1f} GB/s, {found.read_share:.0%} of the limit",
        ),
        (
            "Computed",
            f"{found.achieved_flop_per_s / TERA:,.3f} TFLOP/s, "
            f"{found.matmul_share:.0%} of the limit",
        ),
        ("Bound by", found.bound),
        (
            "Free nodes more, by the limits",
            f"{found.free_nodes_by_limits:,.0f} per request",
        ),
        (
            "Free nodes more, as measured",
            missing(NOT_TRIED) if measured is None else _free_measured(found, measured),
        ),
    ]


def _free_measured(found: Roofline, more: float) -> str:
    if found.costly_nodes_measured is None:
        return f"{more:,.1f} per request, the largest tree measured"
    return f"{more:,.1f} per request; {found.costly_nodes_measured:,.1f} nodes took longer"


def efficiency_facts(found: Efficiency) -> list[Fact]:
    """What the verified nodes and the energy of the trial bought."""
    energy = found.energy_j_per_committed_token
    return [
        (
            "Energy per committed token",
            missing(found.energy_reason) if energy is None else f"{energy:.3f} J",
        ),
        (
            "Verified nodes",
            f"{found.verified_nodes:,}, {found.verified_nodes_per_committed_token:.2f} "
            "per committed token",
        ),
        (
            "Verified but rejected",
            f"{found.rejected_nodes:,} nodes, {found.rejected_nodes / found.verified_nodes:.0%}",
        ),
        ("Accepted but cut off", f"{found.cut_tokens:,} tokens after a stop or the limit"),
        ("Step time drafted for nothing", percent(found.wasted_draft_share)),
        (
            "Step time verified for nothing",
            percent(found.wasted_verify_share, found.wasted_time_reason),
        ),
        (
            "Step time that bought nothing",
            percent(found.wasted_time_share, found.wasted_time_reason),
        ),
    ]
