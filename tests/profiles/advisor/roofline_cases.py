"""Profiles for the rules on the verify pass against measured limits."""

from __future__ import annotations

import pandas as pd
from advisor_profiles import STEPS, Case, evidence, metrics, result, steps

from profiles.advisor import Evidence
from profiles.records import STEP_PHASES, DeviceLimits, ModelShape, PhaseTime, StepAnatomy

SHAPE = ModelShape(
    layers=1, hidden_size=50, intermediate_size=50, heads=1, kv_heads=1, head_dim=25, vocab_size=9,
    linear_parameters=2 * 10**9, weights_read_bytes=4 * 10**9, embedding_row_bytes=100,
    kv_bytes_per_token=100,
)  # fmt: skip


def anatomy(verify_ms: float = 12.0, host: float = 0.1, gaps: float = 0.02) -> StepAnatomy:
    """Steps of 20 ms, whose host and gap shares are given."""
    means = {"prefill": 0.0, "draft": 4.0, "tree": 0.0, "verify": verify_ms, "accept": 2.0}
    times = {phase: phase_time(mean, mean / 20) for phase, mean in means.items()}
    times["host"] = phase_time(20 * host, host)
    return StepAnatomy(
        steps=STEPS,
        wall_ms=20.0 * STEPS,
        phases={phase: times[phase] for phase in STEP_PHASES},
        gaps=phase_time(20 * gaps, gaps),
        accounted_share=1.0,
    )


def phase_time(mean_ms: float, share: float) -> PhaseTime:
    return PhaseTime(mean_ms=mean_ms, p50_ms=mean_ms, p95_ms=2 * mean_ms, share=share)


def sibling(number: int, nodes: float, verify_ms: float):
    """A trial of the same run with other trees."""
    return result(
        number,
        {"beam_width": 8},
        metrics=metrics(tree_nodes_mean=nodes),
        anatomy=anatomy(verify_ms),
    )


def verified(read_bytes_per_s: float = 4e11, siblings=(), gpu=None) -> Evidence:
    """Trees of 10 nodes verified in 12 ms: reading needs 10 ms at 4e11 bytes/s, computing 1 ms."""
    limits = DeviceLimits(
        device="cuda",
        matmul="bf16",
        read_bytes_per_s=read_bytes_per_s,
        matmul_flop_per_s=4e13,
    )
    return evidence(
        result(
            metrics=metrics(tree_nodes_mean=10.0),
            anatomy=anatomy(),
            baseline_anatomy=anatomy(11.5),
            shape=SHAPE,
            limits=limits,
        ),
        siblings=siblings,
        steps=steps().assign(tree_nodes=[[10]] * STEPS, committed=[[3]] * STEPS),
        requests=pd.DataFrame({"id": ["a"], "prompt_tokens": [100]}),
        telemetry=gpu,
    )


CASES = {
    "far_below_roof": Case(
        fires=verified(read_bytes_per_s=1e12),
        cites=[
            "verify takes 12.00 ms a step; at the measured limits 4.00 ms would do",
            "verify reads 333.3 GB/s, 33.3% of what was measured to be possible, and computes "
            "3.33 TFLOP/s, 8.3% of it",
        ],
        silent=verified(read_bytes_per_s=6e11),
    ),
}
