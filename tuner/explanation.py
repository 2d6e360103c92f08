"""What a trial's record needs so that its step times can be explained later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiles.anatomy import step_anatomy
from profiles.records import StepAnatomy, TrialConfig
from tuner.measure import Measurement, Served


def explanation(config: TrialConfig, measured: Measurement) -> dict[str, Any]:
    """The step anatomy of both sides and, for our own engine, what a roofline needs.

    The device should be idle: its limits are measured here, once a process.
    """
    fields: dict[str, Any] = {
        "anatomy": _anatomy(measured.trial),
        "baseline_anatomy": _anatomy(measured.baseline) if measured.baseline else None,
    }
    if config.engine == "redrafter":
        from tuner.limits import device_limits
        from tuner.model_shape import model_shape

        precision = measured.prepared.precision
        fields["shape"] = model_shape(config, precision, measured.memory)
        fields["limits"] = device_limits(config.device, precision)
    return fields


def _anatomy(rounds: Sequence[Served]) -> StepAnatomy:
    return step_anatomy([(served.steps, served.requests) for served in rounds])
