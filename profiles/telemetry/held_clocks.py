"""How much of the time a GPU's clocks were held back, and by what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.telemetry.thinning import Floats

MOST_BUCKETS = 400
REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x2: "application clocks",
    0x100: "display clocks",
    0x1: "idle",
}


@dataclass(frozen=True)
class HeldClocks:
    """Percent of the samples between two edges that name a reason; only reasons that occurred.

    NaN where nothing was sampled.
    """

    edges_s: Floats
    percents: dict[str, Floats]


def held_clocks(t_s: Floats, bits: Floats, window: tuple[float, float]) -> HeldClocks:
    """Share out samples of NVML's throttle reasons, NaN where missing, over `window`."""
    edges = np.linspace(window[0], window[1], min(MOST_BUCKETS, max(1, len(t_s) // 2)) + 1)
    known = ~np.isnan(bits)
    at, values = t_s[known], bits[known].astype(np.int64)
    samples, _ = np.histogram(at, edges)
    percents = {}
    for bit, reason in REASONS.items():
        named, _ = np.histogram(at[(values & bit) != 0], edges)
        if named.any():
            percents[reason] = np.where(samples > 0, 100 * named / np.maximum(samples, 1), np.nan)
    return HeldClocks(edges, percents)
