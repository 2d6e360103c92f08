"""Words for the numbers that several rules cite."""

from __future__ import annotations

from profiles.records import ServeMetrics, Speedup
from profiles.roofline import Roofline


def speedup(value: Speedup) -> str:
    """The paired speed-up with its interval."""
    low, high = value.ci95
    return f"speedup = {value.speedup:.2f}, ci95 {low:.2f} to {high:.2f} over {value.rounds} rounds"


def acceptance_length(metrics: ServeMetrics, draft_len: int) -> str:
    """The headline of acceptance beside the most it could be."""
    return (
        f"acceptance_length = {metrics.acceptance_length:.2f} tokens per step "
        f"(at most {draft_len + 1} at draft_len {draft_len})"
    )


def limits(roof: Roofline) -> str:
    """What the verify pass achieved of both measured limits."""
    return (
        f"verify reads {roof.achieved_bytes_per_s / 1e9:,.1f} GB/s, {roof.read_share:.1%} of what "
        f"was measured to be possible, and computes {roof.achieved_flop_per_s / 1e12:.3g} "
        f"TFLOP/s, {roof.matmul_share:.1%} of it"
    )


def gib(value_bytes: int) -> str:
    """Bytes in GiB."""
    return f"{value_bytes / 2**30:.2f} GiB"
