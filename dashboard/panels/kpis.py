"""The headline numbers of the best trial."""

from __future__ import annotations

import streamlit as st

from dashboard.formats import MISSING, interval, mebibytes, milliseconds, number, tokens_per_s
from profiles.records import TrialResult


def kpis(result: TrialResult) -> None:
    """Draw one tile a number."""
    metrics, memory, baseline = result.metrics, result.memory, result.baseline
    tiles = st.columns(5)
    tiles[0].metric(
        "Output tokens/s",
        tokens_per_s(metrics.output_tokens_per_s if metrics else None),
        border=True,
        help="All users together.",
        delta=f"{tokens_per_s(baseline.output_tokens_per_s)} without speculation"
        if baseline
        else None,
        delta_color="off",
        delta_arrow="off",
    )
    tiles[1].metric(
        "Speed-up",
        f"{result.speedup.speedup:.2f}x" if result.speedup else MISSING,
        border=True,
        help="Paired ratio to no speculation: same model, precision, prompts and batch.",
        delta=f"95 % interval {interval(result.speedup) or MISSING}"
        if result.speedup
        else "this is the baseline",
        delta_color="off",
        delta_arrow="off",
    )
    tiles[2].metric(
        "Acceptance length",
        number(metrics.acceptance_length if metrics else None),
        border=True,
        help="Committed tokens per step and request; 1 without speculation.",
        delta="tokens per step",
        delta_color="off",
        delta_arrow="off",
    )
    tpot = metrics.tpot_ms if metrics else None
    tiles[3].metric(
        "TPOT p95",
        milliseconds(tpot.p95 if tpot else None),
        border=True,
        help="Time per output token after the first; 95 % of requests are faster.",
        delta=f"median {milliseconds(tpot.p50)}" if tpot else None,
        delta_color="off",
        delta_arrow="off",
    )
    tiles[4].metric(
        "Peak memory",
        mebibytes(memory.peak_bytes if memory else None),
        border=True,
        delta=f"weights {mebibytes(memory.weights_bytes)}" if memory else None,
        delta_color="off",
        delta_arrow="off",
    )
