"""Numbers as people read them, always with their unit; a missing number says why."""

from __future__ import annotations

from datetime import datetime

from profiles.records import Speedup

MIB = 1024 * 1024
GIB = 1024 * MIB
MISSING = "n/a"


def missing(reason: str | None) -> str:
    """`n/a (reason)`, or a bare `n/a` where no reason is known."""
    return f"{MISSING} ({reason})" if reason else MISSING


def tokens_per_s(value: float | None, reason: str | None = None) -> str:
    """Output tokens per second."""
    return missing(reason) if value is None else f"{value:,.1f} tok/s"


def milliseconds(value: float | None, reason: str | None = None) -> str:
    """A latency."""
    return missing(reason) if value is None else f"{value:,.1f} ms"


def mebibytes(value: float | None, reason: str | None = None) -> str:
    """Bytes in MiB."""
    return missing(reason) if value is None else f"{value / MIB:,.0f} MiB"


def percent(fraction: float | None, reason: str | None = None) -> str:
    """A fraction as a percentage."""
    return missing(reason) if fraction is None else f"{fraction:.0%}"


def number(value: float | None, reason: str | None = None) -> str:
    """A bare ratio or mean."""
    return missing(reason) if value is None else f"{value:.2f}"


def interval(speedup: Speedup | None) -> str | None:
    """The 95 % interval alone; one round has nothing to resample and gives none."""
    if speedup is None or speedup.rounds < 2:
        return None
    low, high = speedup.ci95
    return f"[{low:.2f}, {high:.2f}]"


def ratio(speedup: Speedup | None, reason: str | None = None) -> str:
    """A speed-up with its 95 % interval."""
    if speedup is None:
        return missing(reason)
    return f"{speedup.speedup:.2f}x {interval(speedup) or '(one round, interval unknown)'}"


def duration(seconds: float) -> str:
    """Elapsed time, to the second."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def moment(iso: str) -> str:
    """A stored UTC time, to the minute."""
    return f"{datetime.fromisoformat(iso):%Y-%m-%d %H:%M} UTC"
