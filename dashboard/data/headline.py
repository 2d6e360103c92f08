"""The numbers that answer for a trial, each with what to compare it to."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.formats import MISSING, interval, mebibytes, milliseconds, number, tokens_per_s
from profiles.records import MemorySplit, ServeMetrics, Speedup, TrialResult


@dataclass(frozen=True)
class Tile:
    """One number; `beside` is the smaller line under it."""

    label: str
    value: str
    beside: str
    explained: str


def headline_tiles(result: TrialResult) -> list[Tile]:
    """The tiles of a measured trial, most asked for first."""
    metrics = result.metrics
    if metrics is None:
        return []
    return [
        _throughput(metrics, result.baseline),
        _speedup(result.speedup),
        Tile(
            "Acceptance length",
            number(metrics.acceptance_length),
            "tokens per step",
            "Committed tokens per step and request; 1 without speculation.",
        ),
        _tpot(metrics),
        _memory(result.memory),
    ]


def _throughput(metrics: ServeMetrics, baseline: ServeMetrics | None) -> Tile:
    without = f"{tokens_per_s(baseline.output_tokens_per_s)} " if baseline else ""
    return Tile(
        "Output tokens/s",
        tokens_per_s(metrics.output_tokens_per_s),
        f"{without}without speculation",
        "All users together.",
    )


def _speedup(speedup: Speedup | None) -> Tile:
    beside = f"95 % interval {interval(speedup) or MISSING}" if speedup else "this is the baseline"
    return Tile(
        "Speed-up",
        f"{speedup.speedup:.2f}x" if speedup else MISSING,
        beside,
        "Paired ratio to no speculation: same model, precision, prompts and batch.",
    )


def _tpot(metrics: ServeMetrics) -> Tile:
    tpot = metrics.tpot_ms
    return Tile(
        "TPOT p95",
        milliseconds(tpot.p95 if tpot else None),
        f"median {milliseconds(tpot.p50)}" if tpot else "every request gave one token",
        "Time per output token after the first; 95 % of requests are faster.",
    )


def _memory(memory: MemorySplit | None) -> Tile:
    return Tile(
        "Peak memory",
        mebibytes(memory.peak_bytes if memory else None),
        f"weights {mebibytes(memory.weights_bytes)}" if memory else "not measured",
        "The most that was held at once.",
    )
