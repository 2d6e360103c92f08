"""Processes that compute on a GPU, and which of them are not the watched one's.

The driver names processes by the host's pids. A container has pids of its own, so that inside one
the processes can be counted but not told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from profiles.telemetry.counters import Reading, Unavailable
from profiles.telemetry.nvml import Nvml

_HOST_PID_NAMESPACE = 0xEFFFFFFC  # Linux, PROC_PID_INIT_INO


class GpuProcesses:
    """Counts processes of one GPU. `own_pids` gives the watched process and its children."""

    def __init__(self, nvml: Nvml, own_pids: Callable[[], set[int]], pids_are_ours: bool) -> None:
        self._nvml = nvml
        self._own_pids = own_pids
        self._pids_are_ours = pids_are_ours
        self._known: set[int] = set()

    def count(self, handle: Any) -> tuple[Reading, Reading]:
        """How many processes compute on the GPU, and how many do not belong to the watched one.

        Raises NVMLError, Unavailable.
        """
        running = {int(p.pid) for p in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        if self._pids_are_ours:
            return len(running), len(self._strangers(running))
        if not running:
            raise Unavailable("the driver lists no processes to a container, not even this one")
        return len(running), Unavailable(
            "in a container the driver's pids are not ours, so foreign processes cannot be "
            f"told from this one; {len(running)} compute on this GPU"
        )

    def _strangers(self, running: set[int]) -> set[int]:
        """Looks for children, which is costly, only when a pid is new."""
        if not running <= self._known:
            self._known = self._own_pids()
        return running - self._known


def sees_host_pids() -> bool:
    """Whether this process has the host's pids, so that the driver's mean the same."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == _HOST_PID_NAMESPACE
    except OSError:
        return False
