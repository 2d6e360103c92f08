"""How often the sampler may look."""

from __future__ import annotations

DEFAULT_HZ = 10.0
HIGHEST_HZ = 100.0  # faster than most counters move, and a cost that a measurement would show


def check_hz(hz: float) -> float:
    """Return `hz`. Raises ValueError outside of what the sampler keeps up with."""
    if not 0 < hz <= HIGHEST_HZ:
        raise ValueError(f"hz = {hz} must be above 0 and at most {HIGHEST_HZ:g} samples a second")
    return hz
