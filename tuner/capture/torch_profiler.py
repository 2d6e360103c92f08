"""PyTorch's own profiler: on every device, with no tool to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.capture.base import Profiler


class TorchProfiler(Profiler):
    """Writes a Chrome trace; phases are `record_function` ranges."""

    name = "torch"
    needs_gpu = False
    steps = 20

    def check(self) -> None:
        """It is part of PyTorch."""

    def command(self, worker: list[str], folder: Path) -> list[str]:
        """The worker alone: the profiler runs inside it."""
        return worker

    @contextmanager
    def recording(self, folder: Path) -> Iterator[None]:
        """Record while the block runs, then write the trace."""
        import torch
        from torch.profiler import ProfilerActivity, profile, record_function

        from tuner.engines.redrafter.clock import annotated_phases

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        with annotated_phases(record_function), profile(activities=activities) as profiler:
            yield
        profiler.export_chrome_trace(str(self.report(folder)))

    def report(self, folder: Path) -> Path:
        """The trace, gzipped by its name."""
        return folder / "trace.json.gz"
