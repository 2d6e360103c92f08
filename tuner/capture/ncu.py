"""Nsight Compute: counters of single kernels, each run alone, and again for every counter set."""

from __future__ import annotations

from pathlib import Path

from tuner.capture.nsight import NsightTool

MAX_LAUNCHES = 2_000  # each is replayed several times over


class Ncu(NsightTool):
    """Profiles one step unless asked for more, not the first: prompts would use the launches up."""

    name = "ncu"
    product = "Nsight Compute"
    steps = 1
    reads_prompts = False

    def command(self, worker: list[str], folder: Path) -> list[str]:
        """Profile the recorded steps' kernels at the clocks that the trial runs at."""
        return [
            self.path(),
            "--profile-from-start=off",
            "--clock-control=none",
            "--target-processes=application-only",
            f"--launch-count={MAX_LAUNCHES}",
            "--nvtx",
            "--csv",
            "--page=raw",
            "--print-units=base",
            f"--log-file={self.report(folder)}",
            *worker,
        ]

    def report(self, folder: Path) -> Path:
        """The raw page as CSV."""
        return folder / "report.csv"
