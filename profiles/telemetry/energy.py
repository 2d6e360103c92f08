"""Energy of a window, from counters that only ever rise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from profiles.records import EnergyUse
from profiles.telemetry.columns import HOST
from profiles.telemetry.parts import Reasons

if TYPE_CHECKING:
    import pandas as pd

_EDGE_S = 0.5  # the samples may miss at most this much of either end of the window

Floats = NDArray[np.float64]


class _NoEnergy(Exception):
    """Why a source gives no energy."""


def energy_between(
    samples: pd.DataFrame,
    t0_s: float,
    t1_s: float,
    reasons: Reasons | None = None,
    tokens: int | None = None,
) -> EnergyUse:
    """Energy used from `t0_s` to `t1_s` (monotonic seconds), summed over the sampled GPUs.

    Without GPUs it is the CPU packages' energy by RAPL. The counter is interpolated at both ends;
    where it fell, the driver had restarted and counting begins again at 0, so the energy between
    the last sample before and the restart is missing. One GPU without energy makes the sum
    missing. `tokens` gives `energy_mj_per_token`; `reasons` gives the sampler's own reason.

    Raises:
        ValueError: the window is empty or `tokens` is not positive.
    """
    if not t1_s > t0_s:
        raise ValueError(f"the window from {t0_s} to {t1_s} s is empty")
    if tokens is not None and tokens < 1:
        raise ValueError(f"tokens = {tokens} must be positive")
    gpus = [source for source in samples["source"].unique() if source != HOST]
    column = "energy_mj" if gpus else "cpu_energy_mj"
    try:
        used = sum(
            _used_mj(samples, source, column, t0_s, t1_s, reasons) for source in gpus or [HOST]
        )
    except _NoEnergy as error:
        return EnergyUse(energy_mj=None, energy_mj_per_token=None, reason=str(error))
    return EnergyUse(energy_mj=used, energy_mj_per_token=used / tokens if tokens else None)


def _used_mj(
    samples: pd.DataFrame,
    source: str,
    column: str,
    t0_s: float,
    t1_s: float,
    reasons: Reasons | None,
) -> float:
    rows = samples.loc[samples["source"] == source, ["t_s", column]].dropna()
    if rows.empty:
        raise _NoEnergy(f"{source}: {_why(source, column, reasons)}")
    t_s = rows["t_s"].to_numpy(dtype=np.float64)
    if t_s[0] > t0_s + _EDGE_S or t_s[-1] < t1_s - _EDGE_S:
        raise _NoEnergy(
            f"{source}: energy was sampled from {t_s[0]:.1f} to {t_s[-1]:.1f} s, "
            f"not over the whole window from {t0_s:.1f} to {t1_s:.1f} s"
        )
    used = _rising(rows[column].to_numpy(dtype=np.float64))
    start, end = np.interp((t0_s, t1_s), t_s, used)
    return float(end - start)


def _rising(counter: Floats) -> Floats:
    """The counter from 0 on, with every fall taken as a restart at 0."""
    steps = np.diff(counter)
    return np.concatenate(([0.0], np.cumsum(np.where(steps >= 0, steps, counter[1:]))))


def _why(source: str, column: str, reasons: Reasons | None) -> str:
    if reasons is not None:
        missing = reasons.columns.get(source, {}).get(column)
        if missing is not None:
            return missing.reason
    return "no energy counter was sampled"
