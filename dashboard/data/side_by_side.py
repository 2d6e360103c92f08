"""Two trials, or two imported profiles, number by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import pandas as pd

from dashboard.data.kernel_rows import KernelRow
from dashboard.formats import MIB
from profiles.nsight import CaptureSummary
from profiles.records import TrialResult


@dataclass(frozen=True)
class Pair:
    """One number of both sides; None is not measured. `change_pct` is right against left."""

    what: str
    left: float | None
    right: float | None
    change_pct: float | None


@dataclass(frozen=True)
class KernelPair:
    """One kernel of both sides; None: it did not run there."""

    kernel: str
    left_ms: float | None
    right_ms: float | None
    difference_ms: float
    left_launches: int | None
    right_launches: int | None
    name: str


def trial_pairs(left: TrialResult, right: TrialResult) -> list[Pair]:
    """The headline numbers of two trials."""
    a, b = _trial_numbers(left), _trial_numbers(right)
    return [pair(what, a[what], b[what]) for what in a]


def capture_pairs(left: CaptureSummary, right: CaptureSummary) -> list[Pair]:
    """What two captures hold."""
    a, b = _capture_numbers(left), _capture_numbers(right)
    return [pair(what, a[what], b[what]) for what in a]


def pair(what: str, left: float | None, right: float | None) -> Pair:
    """Compare two numbers; there is no change against zero or a missing one."""
    if not left or right is None:
        return Pair(what, left, right, None)
    shown = round(100 * (right / left - 1), 1)
    return Pair(what, left, right, shown + 0.0)  # NOTE: adding 0.0 makes a 0.0 of -0.0


def kernel_pairs(left: Sequence[KernelRow], right: Sequence[KernelRow]) -> list[KernelPair]:
    """Kernels by their full name, the largest difference first."""
    a, b = {row.name: row for row in left}, {row.name: row for row in right}
    pairs = [_kernel_pair(a.get(name), b.get(name)) for name in {**a, **b}]
    return sorted(pairs, key=lambda each: -abs(each.difference_ms))


def pair_frame(pairs: Sequence[Pair] | Sequence[KernelPair]) -> pd.DataFrame:
    """The pairs as a frame. There must be at least one."""
    return pd.DataFrame(
        [asdict(each) for each in pairs], columns=[f.name for f in fields(pairs[0])]
    )


def _kernel_pair(left: KernelRow | None, right: KernelRow | None) -> KernelPair:
    either = left or right
    assert either is not None
    left_ms, right_ms = (side.total_ms if side else None for side in (left, right))
    return KernelPair(
        kernel=either.kernel,
        left_ms=left_ms,
        right_ms=right_ms,
        difference_ms=(right_ms or 0.0) - (left_ms or 0.0),
        left_launches=left.launches if left else None,
        right_launches=right.launches if right else None,
        name=either.name,
    )


def _trial_numbers(result: TrialResult) -> dict[str, float | None]:
    metrics, memory, energy = result.metrics, result.memory, result.energy
    anatomy = result.anatomy
    peak = memory.peak_bytes if memory else None
    return {
        "Output tokens/s": metrics.output_tokens_per_s if metrics else None,
        "Speed-up": result.speedup.speedup if result.speedup else None,
        "Acceptance length (tokens per step)": metrics.acceptance_length if metrics else None,
        "Tree nodes per step and request": metrics.tree_nodes_mean if metrics else None,
        "TPOT p95 (ms)": metrics.tpot_ms.p95 if metrics and metrics.tpot_ms else None,
        "TTFT p95 (ms)": metrics.ttft_ms.p95 if metrics else None,
        "Mean step (ms)": metrics.step_ms_mean if metrics else None,
        "Verify, median (ms)": anatomy.phases["verify"].p50_ms if anatomy else None,
        "Draft, median (ms)": anatomy.phases["draft"].p50_ms if anatomy else None,
        "Peak memory (MiB)": peak / MIB if peak is not None else None,
        "Energy per token (mJ)": energy.energy_mj_per_token if energy else None,
    }


def _capture_numbers(summary: CaptureSummary) -> dict[str, float | None]:
    busy = summary.gpu_busy
    numbers: dict[str, float | None] = {
        "Kernels": summary.kernels,
        "Kernel time, plain sum (ms)": _ms(summary.kernel_time_ns),
        "Whole CUDA graphs": summary.graph_spans,
        "Time of whole CUDA graphs (ms)": _ms(summary.graph_time_ns),
        "GPU busy, all GPUs (ms)": sum(each.busy_ns for each in busy) / 1e6 if busy else None,
        "Copies": summary.copies,
        "API calls": summary.api_calls,
        "NVTX ranges": summary.ranges,
    }
    for metric, title in (("sm_active_pct", "SM"), ("tensor_active_pct", "tensor")):
        means = [each.mean for each in summary.gpu_metrics if each.metric == metric]
        known = [mean for mean in means if mean is not None]
        numbers[f"Mean {title} active over the capture (%)"] = (
            sum(known) / len(known) if known else None
        )
    return numbers


def _ms(ns: int | None) -> float | None:
    return ns / 1e6 if ns is not None else None
