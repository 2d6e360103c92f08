"""The few numbers of Linux's /proc that are sampled (man pages proc_stat, proc_pid_stat).

Files stay open and only their beginning is read. psutil opens and parses all of each, every time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from profiles.telemetry.counters import Unavailable

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_BYTES = 1024  # more than the line of a process or of all cores together can be
_IDLE = slice(3, 5)  # idle and waiting for a disk
_UTIME, _STIME, _RSS = 14 - 2, 15 - 2, 24 - 2  # fields, counted from the end of the name, field 2


class CpuTicks(NamedTuple):
    """Time of all cores together, in ticks since the host started."""

    busy: int
    total: int


class Usage(NamedTuple):
    """What a process used since it started, and holds now. A zombie holds nothing."""

    cpu_s: float
    rss_bytes: int


class ProcFile:
    """A file of /proc. Raises OSError, from a process that has ended too."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def beginning(self) -> bytes:
        """Its first bytes as they are now."""
        return os.pread(self._descriptor, _MOST_BYTES, 0)

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)


def cpu_ticks(stat: bytes) -> CpuTicks:
    """Read /proc/stat. Guests are left out, since the time of users holds theirs."""
    ticks = [int(word) for word in stat[: stat.index(b"\n")].split()[1:9]]
    total = sum(ticks)
    return CpuTicks(total - sum(ticks[_IDLE]), total)


def memory_used_bytes(meminfo: bytes) -> int:
    """Read /proc/meminfo: total minus available. Raises Unavailable where one is not told."""
    words = meminfo.split()
    kib = dict(zip(words[0::3], words[1::3], strict=False))
    try:
        return 1024 * (int(kib[b"MemTotal:"]) - int(kib[b"MemAvailable:"]))
    except KeyError as error:
        raise Unavailable(f"/proc/meminfo does not tell {error.args[0].decode()}") from error


def usage(stat: bytes) -> Usage:
    """Read /proc/<pid>/stat."""
    fields = stat[stat.rindex(b")") :].split()  # NOTE a name may hold spaces and brackets
    ticks = int(fields[_UTIME]) + int(fields[_STIME])
    return Usage(ticks / _TICKS_PER_S, int(fields[_RSS]) * _PAGE_BYTES)
