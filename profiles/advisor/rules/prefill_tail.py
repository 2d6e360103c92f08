"""Slow tails where steps also read prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import NOT_SHOWN, Finding
from profiles.anatomy import step_total_ms
from profiles.records import Percentiles, ServeMetrics

if TYPE_CHECKING:
    import pandas as pd

FAR_ABOVE = 3.0  # our judgement: p95 / p50
SLOWER = 1.5  # our judgement: mean duration of steps that read prompts / of those that do not
FEWEST_STEPS = 3  # our judgement, of either kind


def prefill_tail(evidence: Evidence) -> list[Finding]:
    """Find a TTFT or ITL p95 far above p50 in a trial whose steps mix prompts and generation."""
    metrics, steps = evidence.result.metrics, evidence.steps
    if metrics is None or steps is None:
        return []
    tails, shared = _tails(metrics), _shared_steps(steps)
    if not tails or shared is None:
        return []
    ratio, words = shared
    batch = evidence.result.config.batch_size
    return [
        Finding(
            rule="prefill_tail",
            severity="warning",
            title=f"Latency has a tail, and steps that also read prompts take {ratio:.1f} times "
            "as long as others.",
            evidence=[*tails, words],
            causes=[
                "requests in generation wait while a joining prompt is read in the same step",
                f"{NOT_SHOWN}ttft_ms also holds the wait for a free place in the batch",
            ],
            next_experiment="Measure a smaller batch_size, so that fewer prompts join at once; on "
            "TensorRT-LLM enable chunked context.",
            knobs={"batch_size": [batch // 2]} if batch > 1 else {},
        )
    ]


def _tails(metrics: ServeMetrics) -> list[str]:
    both: list[tuple[str, Percentiles | None]] = [
        ("ttft_ms", metrics.ttft_ms),
        ("itl_ms", metrics.itl_ms),
    ]
    return [
        f"{name}: p95 = {times.p95:.1f} ms, {times.p95 / times.p50:.1f} times p50 "
        f"{times.p50:.1f} ms"
        for name, times in both
        if times is not None and times.p95 > FAR_ABOVE * times.p50
    ]


def _shared_steps(steps: pd.DataFrame) -> tuple[float, str] | None:
    """How much longer steps take that read prompts beside generation, or None if not clearly."""
    generates = steps["request_ids"].map(len) > 0
    reads = steps["context_requests"] > 0
    took_ms = step_total_ms(steps)
    mixed, plain = took_ms[reads & generates], took_ms[~reads & generates]
    if min(len(mixed), len(plain)) < FEWEST_STEPS or mixed.mean() < SLOWER * plain.mean():
        return None
    return float(mixed.mean() / plain.mean()), (
        f"{len(mixed)} steps read prompts beside generation and took {mixed.mean():.1f} ms on "
        f"average, {len(plain)} others {plain.mean():.1f} ms"
    )
