"""What a rule may look at. Whatever is missing makes the rules that need it silent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profiles.advisor.finding import ConfigKnob
from profiles.records import Hardware, ServeMetrics, TrialResult, TrialState
from profiles.roofline import Roofline, roofline
from profiles.served_telemetry import ServedTelemetry
from profiles.telemetry.parts import Reasons

if TYPE_CHECKING:
    import pandas as pd

# NOTE: tuner.workloads.SHAPE_ONLY_CATEGORY, which this floor may not import; a test compares them.
SHAPE_ONLY_CATEGORY = "shape-only"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One trial and what was recorded around it.

    `siblings` are other trials of the same run; `steps` and `requests` have the columns that
    `TrialFolder` gives; `served` is the telemetry of the steps; `log` is the worker's output.
    """

    result: TrialResult
    siblings: Sequence[TrialResult] = ()
    steps: pd.DataFrame | None = None
    requests: pd.DataFrame | None = None
    served: ServedTelemetry | None = None
    reasons: Reasons = field(default_factory=Reasons)
    hardware: Hardware | None = None
    log: str | None = None

    @property
    def speculated(self) -> ServeMetrics | None:
        """Metrics of a trial that drafted; None for a baseline or without metrics."""
        return self.result.metrics if self.result.config.draft_len > 0 else None

    @property
    def is_shape_only(self) -> bool:
        """Whether the prompts held no real text, so that acceptance means nothing."""
        metrics = self.result.metrics
        return metrics is not None and set(metrics.acceptance_length_by_category) == {
            SHAPE_ONLY_CATEGORY
        }

    def roofline(self) -> Roofline | None:
        """The verify pass against its device's limits, None where it says nothing."""
        if self.steps is None or self.requests is None:
            return None
        found = roofline(self.result, self.steps, self.requests, self.siblings)
        return found if isinstance(found, Roofline) and found.note is None else None

    def alike_but_for(self, knob: ConfigKnob) -> list[TrialResult]:
        """Measured siblings with the same config, workload and device, `knob` set aside."""
        return [other for other in self.siblings if self._is_alike(other, knob)]

    def _is_alike(self, other: TrialResult, knob: ConfigKnob) -> bool:
        config = self.result.config
        aligned = other.config.model_copy(update={knob: getattr(config, knob)})
        return (
            other.number != self.result.number
            and other.state in (TrialState.COMPLETE, TrialState.INFEASIBLE)
            and other.metrics is not None
            and aligned == config
            and other.workload == self.result.workload
            and other.device == self.result.device
        )
