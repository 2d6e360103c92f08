"""How busy the GPU was by two witnesses: Nsight's GPU metrics and the sampler's GPM counters.

Both are averages, so they are compared over the same windows: every GPM value covers the time since
the earlier sample that it was compared with, and Nsight's samples are averaged over just that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from profiles.records import Record
from profiles.telemetry.columns import HOST
from profiles.telemetry.gpm import WINDOW_S
from profiles.telemetry.parts import Reasons

if TYPE_CHECKING:
    import pandas as pd

# GPM's column, and the metrics of Nsight Systems that add up to the same.
_SAME = {
    "sm_active_pct": ("sm_active_pct",),
    "tensor_active_pct": ("tensor_active_pct",),
    "dram_active_pct": ("dram_read_pct", "dram_write_pct"),
}
Floats = NDArray[np.float64]


class ActivityCheck(Record):
    """Means of one metric over the windows that both saw whole; nulls have a `reason`."""

    metric: str
    windows: int = 0
    nsight_pct: float | None = None
    gpm_pct: float | None = None
    difference_points: float | None = None  # Nsight minus GPM
    reason: str | None = None


def check_activity(
    gpu_metrics: pa.Table,
    samples: pd.DataFrame,
    reasons: Reasons,
    origin_s: float,
    begin_s: float,
    end_s: float,
) -> list[ActivityCheck]:
    """Compare what was recorded from `begin_s` to `end_s`, seconds on the telemetry's clock.

    `gpu_metrics` holds one GPU's rows of that table and `origin_s` is when its time zero was;
    `samples` is the trial's telemetry, of one GPU beside the host, with its `reasons`.
    """
    rows = samples[samples["source"] != HOST]
    sources = rows["source"].nunique()
    if sources != 1:
        reason = "the telemetry has no GPU" if sources == 0 else "the telemetry has several GPUs"
        return [ActivityCheck(metric=metric, reason=reason) for metric in _SAME]
    checks = []
    for metric, names in _SAME.items():
        if metric not in rows or rows[metric].isna().all():
            missing = reasons.columns.get(rows["source"].iloc[0], {}).get(metric)
            why = missing.reason if missing else "it was not sampled"
            checks.append(ActivityCheck(metric=metric, reason=f"no GPM counter: {why}"))
        else:
            checks.append(_check(metric, names, gpu_metrics, rows, origin_s, begin_s, end_s))
    return checks


def _check(
    metric: str,
    names: tuple[str, ...],
    gpu_metrics: pa.Table,
    rows: pd.DataFrame,
    origin_s: float,
    begin_s: float,
    end_s: float,
) -> ActivityCheck:
    series = [_series(gpu_metrics, name, origin_s) for name in names]
    if any(not len(at_s) for at_s, _ in series):
        return ActivityCheck(metric=metric, reason="Nsight recorded no such GPU metric")
    gpm, nsight = [], []
    for start_s, stop_s, value in _windows(rows, metric):
        means = [_mean(at_s, values, start_s, stop_s) for at_s, values in series]
        if begin_s <= start_s and stop_s <= end_s and None not in means:
            gpm.append(value)
            nsight.append(sum(mean for mean in means if mean is not None))
    if not gpm:
        reason = f"the {end_s - begin_s:.2f} s that were captured hold no whole window of GPM"
        return ActivityCheck(metric=metric, reason=reason)
    seen, counted = float(np.mean(nsight)), float(np.mean(gpm))
    return ActivityCheck(
        metric=metric,
        windows=len(gpm),
        nsight_pct=seen,
        gpm_pct=counted,
        difference_points=seen - counted,
    )


def _windows(rows: pd.DataFrame, metric: str) -> list[tuple[float, float, float]]:
    """Begin, end and value of every GPM sample, as `telemetry.gpm` pairs them."""
    at_s = rows["t_s"].to_numpy(dtype=np.float64)
    values = rows[metric].to_numpy(dtype=np.float64)
    earlier = np.searchsorted(at_s, at_s - WINDOW_S, side="right") - 1
    return [
        (float(at_s[earlier[i]]), float(at_s[i]), float(values[i]))
        for i in range(len(at_s))
        if earlier[i] >= 0 and np.isfinite(values[i])
    ]


def _series(gpu_metrics: pa.Table, name: str, origin_s: float) -> tuple[Floats, Floats]:
    rows = gpu_metrics.filter(pc.equal(gpu_metrics["metric"].cast(pa.string()), name))
    rows = rows.filter(rows["value"].is_valid()).sort_by("timestamp_ns")
    return rows["timestamp_ns"].to_numpy() / 1e9 + origin_s, rows["value"].to_numpy()


def _mean(at_s: Floats, values: Floats, start_s: float, stop_s: float) -> float | None:
    first, last = np.searchsorted(at_s, (start_s, stop_s))
    return float(values[first:last].mean()) if last > first else None
