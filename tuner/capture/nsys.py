"""Nsight Systems: a timeline of kernels, launches and phases, with GPU metrics where permitted."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tuner.capture.base import GraphTrace
from tuner.capture.nsight import NsightTool

_HELP_TIMEOUT_S = 60
_LISTED_GPU = re.compile(r"^\s*\d+:", re.MULTILINE)


class Nsys(NsightTool):
    """NOTE GPU metrics come at 10 kHz, 22 of them: a million rows in under 5 s. Few steps do."""

    name = "nsys"
    product = "Nsight Systems"
    steps = 20

    def __init__(self, graph_trace: GraphTrace = "node") -> None:
        self.graph_trace = graph_trace

    def command(self, worker: list[str], folder: Path) -> list[str]:
        """Trace CUDA and NVTX of the recorded steps only, and let the worker live on."""
        nsys = self.path()
        return [
            nsys,
            "profile",
            "--trace=cuda,nvtx",
            "--sample=none",
            "--cpuctxsw=none",
            f"--cuda-graph-trace={self.graph_trace}",
            "--capture-range=cudaProfilerApi",
            "--capture-range-end=stop",
            *_gpu_metrics(nsys),
            f"--output={folder / 'report'}",
            "--force-overwrite=true",
            *worker,
        ]

    def report(self, folder: Path) -> Path:
        """A report that Nsight Systems' own window opens too."""
        return folder / "report.nsys-rep"


def _gpu_metrics(nsys: str) -> list[str]:
    """Ask for GPU metrics where this user may read them; without, the trace is still whole."""
    asked = subprocess.run(
        [nsys, "profile", "--gpu-metrics-devices=help"],
        capture_output=True,
        text=True,
        timeout=_HELP_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    supported = (asked.stdout + asked.stderr).split("not supported")[0]
    if not _LISTED_GPU.search(supported):
        return []
    some = "CUDA_VISIBLE_DEVICES" in os.environ and "cuda-visible" in supported
    return [f"--gpu-metrics-devices={'cuda-visible' if some else 'all'}"]
