"""A capture in few words; all of it is in the trial's `capture.json`."""

from __future__ import annotations

from typing import Any

from profiles.nsight.phases import CapturedPhases
from profiles.trial_capture import TrialCapture

_TOP_KERNELS = 8
_NAME_LENGTH = 72


def captured_fields(capture: TrialCapture) -> dict[str, Any]:
    """What `tuner run --profile` says of the capture."""
    seen = capture.anatomy
    return {
        "import": capture.import_id,
        "report": capture.report,
        "steps": capture.window.steps,
        "step": seen.step.model_dump() if seen.step else None,
        "gaps": seen.gaps.model_dump() if seen.gaps else None,
        "phases": {
            phase.phase: phase.model_dump(exclude={"phase"}, exclude_none=True)
            for phase in seen.phases
        },
        "top_kernels": _top_kernels(seen),
        "cuda_graphs": seen.graphs_note,
        "activity": {
            check.metric: check.model_dump(exclude={"metric"}, exclude_none=True)
            for check in capture.activity
        },
        "missing": seen.missing,
    }


def _top_kernels(seen: CapturedPhases) -> list[str]:
    return [
        f"{kernel.phase}: {kernel.count} x {kernel.kernel[:_NAME_LENGTH]}, {kernel.total_ns:,} ns"
        for kernel in seen.kernels[:_TOP_KERNELS]
        if kernel.total_ns is not None
    ]
