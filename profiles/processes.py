"""Is a process that we know by its id really the one we know, and does it still run?

`os.kill(pid, 0)` is no answer: it succeeds on a zombie, and on whatever process took the number
later. Linux names a process for good by boot id, pid and start time in clock ticks
(`/proc/<pid>/stat`, field 22: proc_pid_stat(5)). Elsewhere psutil's creation time stands in.
"""

from __future__ import annotations

from pathlib import Path

import psutil

_PROC = Path("/proc")


def boot_id() -> str:
    """Identity of this boot of this host; empty where the system has none to offer."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_time(pid: int) -> str | None:
    """When `pid` started, in the system's own unit, or None when it does not run (zombies too)."""
    if _PROC.joinpath("self/stat").exists():
        return _linux_start_time(pid)
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return f"{process.create_time():.2f}"
    except psutil.Error:
        return None


def is_alive(pid: int, started: str, boot: str) -> bool:
    """Whether the process `pid` that `started` in this `boot` still runs and is no zombie.

    A process of another host or another boot counts as not alive.
    """
    return boot == boot_id() and start_time(pid) == started


def _linux_start_time(pid: int) -> str | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # NOTE the command in parentheses may hold spaces and parentheses: count from the last ")".
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]
