"""Processes that compute on a GPU, and which of them are not the watched one's.

The driver names processes by the host's pids. A container has pids of its own, so that inside one
the processes can be counted but not told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from profiles.telemetry.counters import Unavailable
from profiles.telemetry.nvml import Nvml

_HOST_PID_NAMESPACE = 0xEFFFFFFC  # Linux, PROC_PID_INIT_INO


class GpuProcesses:
    """Counts processes of one GPU. `own_pids` gives the watched process and its children."""

    def __init__(self, nvml: Nvml, own_pids: Callable[[], set[int]], pids_are_ours: bool) -> None:
        self._nvml = nvml
        self._own_pids = own_pids
        self._pids_are_ours = pids_are_ours

    def all(self, handle: Any) -> int:
        """How many processes compute on the GPU. Raises NVMLError, Unavailable."""
        return len(self._running(handle))

    def foreign(self, handle: Any) -> int:
        """How many of them do not belong to the watched process. Raises NVMLError, Unavailable."""
        running = self._running(handle)
        if not self._pids_are_ours:
            raise Unavailable(
                "in a container the driver's pids are not ours, so foreign processes cannot be "
                f"told from this one; {len(running)} compute on this GPU"
            )
        return len(running - self._own_pids())

    def _running(self, handle: Any) -> set[int]:
        running = {int(p.pid) for p in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        if not running and not self._pids_are_ours:
            raise Unavailable("the driver lists no processes to a container, not even this one")
        return running


def sees_host_pids() -> bool:
    """Whether this process has the host's pids, so that the driver's mean the same."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == _HOST_PID_NAMESPACE
    except OSError:
        return False
