"""Time of the phases of a step, on the device that does the work.

On the CPU a phase ends when its code returns. On CUDA the work is asynchronous: events are recorded
at the borders and read after the step's one read back, so that timing adds no synchronisation.
"""

from __future__ import annotations

import time

import torch


class PhaseClock:
    """Marks the ends of phases; `durations_ms` is valid after the device has finished."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.start_s = time.perf_counter()
        self._marks: list[tuple[str, torch.cuda.Event | float]] = []
        self.mark("start")

    def mark(self, phase: str) -> None:
        """End `phase` here."""
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append((phase, event))
        else:
            self._marks.append((phase, time.perf_counter()))

    def durations_ms(self) -> dict[str, float]:
        """Return milliseconds by phase."""
        pairs = zip(self._marks, self._marks[1:], strict=False)
        return {phase: _elapsed_ms(before, after) for (_, before), (phase, after) in pairs}


def _elapsed_ms(before: torch.cuda.Event | float, after: torch.cuda.Event | float) -> float:
    if isinstance(before, float) or isinstance(after, float):
        return (float(after) - float(before)) * 1e3  # type: ignore[arg-type]
    return float(before.elapsed_time(after))
