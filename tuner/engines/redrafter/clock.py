"""Time of the phases of a step, on the device that does the work.

On the CPU a phase ends when its code returns. On CUDA the work is asynchronous: events are recorded
at the borders. `durations_ms` waits for the newest of them, and with it for everything that was
launched before, the step's read back included.

While a profiler is attached, `annotated_phases` also opens a range of its own around every step and
every phase, so that a capture can say which phase launched what. Ranges close in order, so no step
may then begin ahead of the last one's end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

OpenRange = Callable[[str], AbstractContextManager[object]]

_open_range: OpenRange | None = None


@contextmanager
def annotated_phases(open_range: OpenRange) -> Iterator[None]:
    """Open a profiler's range, such as `torch.cuda.nvtx.range`, around steps and phases."""
    global _open_range
    _open_range = open_range
    try:
        yield
    finally:
        _open_range = None


class PhaseClock:
    """Marks where the phases of one step begin; the step begins when the clock is made.

    Phases are `prefill`, `draft`, `tree`, `verify`, `accept` and `host`, in any order; a phase that
    comes twice adds up.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.start_s = time.perf_counter()
        self._begins: list[tuple[str, torch.cuda.Event | float]] = []
        self._ranges: list[AbstractContextManager[object]] = []
        self._open("step")

    def begin(self, phase: str) -> None:
        """Begin `phase` here, which ends the one before."""
        if len(self._ranges) > 1:
            self._close()
        self._open(phase)
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._begins.append((phase, event))
        else:
            self._begins.append((phase, time.perf_counter()))

    def end(self) -> None:
        """End the step: close the profiler's ranges of the last phase and of the step."""
        while self._ranges:
            self._close()

    def durations_ms(self) -> dict[str, float]:
        """Wait for the device; milliseconds of every phase that another one followed."""
        if self._begins and isinstance(latest := self._begins[-1][1], torch.cuda.Event):
            latest.synchronize()
        durations: dict[str, float] = {}
        for (phase, began), (_, ended) in zip(self._begins, self._begins[1:], strict=False):
            durations[phase] = durations.get(phase, 0.0) + _elapsed_ms(began, ended)
        return durations

    def _open(self, name: str) -> None:
        if _open_range is not None:
            opened = _open_range(name)
            opened.__enter__()
            self._ranges.append(opened)

    def _close(self) -> None:
        self._ranges.pop().__exit__(None, None, None)


def _elapsed_ms(before: torch.cuda.Event | float, after: torch.cuda.Event | float) -> float:
    if isinstance(before, float) or isinstance(after, float):
        return (float(after) - float(before)) * 1e3  # type: ignore[arg-type]
    return float(before.elapsed_time(after))
