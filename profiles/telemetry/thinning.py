"""Long series thinned for a screen, so that peaks and gaps stay visible."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_POINTS = 600  # of one series on a screen
GAP_PERIODS = 5  # a silence of so many usual periods is a gap


@dataclass(frozen=True)
class Series:
    """A series for a chart; NaN values break the line.

    Of a thinned series each point stands for the samples of one bucket: `low` and `high` are their
    extremes. Otherwise all three are the samples themselves.
    """

    seconds: Floats
    low: Floats
    mean: Floats
    high: Floats

    @property
    def is_thinned(self) -> bool:
        """Whether points stand for several samples."""
        return self.low is not self.high

    def since(self, origin_s: float) -> Series:
        """The same on a clock that is zero at `origin_s`."""
        return replace(self, seconds=self.seconds - origin_s)

    def scaled(self, divisor: float) -> Series:
        """The same in another unit."""
        if not self.is_thinned:
            values = self.high / divisor
            return Series(self.seconds, values, values, values)
        return Series(self.seconds, self.low / divisor, self.mean / divisor, self.high / divisor)


def thin(seconds: Floats, values: Floats, most: int = MOST_POINTS) -> Series:
    """Reduce to `most` buckets of equal duration, or keep every sample where there are fewer.

    `seconds` must not decrease. A bucket that holds a gap, one of unmeasured (NaN) samples or of
    silence, is followed by a NaN, however short the gap is.
    """
    silent = _silences(seconds)
    if len(seconds) <= most:
        at = np.flatnonzero(silent) + 1
        kept = np.insert(values, at, np.nan)
        return Series(np.insert(seconds, at, seconds[at - 1]), kept, kept, kept)
    span = seconds[-1] - seconds[0]
    bucket = np.minimum(((seconds - seconds[0]) * (most / span)).astype(np.int64), most - 1)
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    ends = np.append(starts[1:], len(seconds))
    known = ~np.isnan(values)
    counts = np.add.reduceat(known.astype(np.int64), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    mean = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    broken = (counts > 0) & (counts < ends - starts) | np.logical_or.reduceat(silent, starts)
    at = np.flatnonzero(broken) + 1
    middle = (seconds[starts] + seconds[ends - 1]) / 2
    return Series(
        np.insert(middle, at, seconds[ends - 1][at - 1]),
        np.insert(np.fmin.reduceat(values, starts), at, np.nan),
        np.insert(mean, at, np.nan),
        np.insert(np.fmax.reduceat(values, starts), at, np.nan),
    )


def within(seconds: Floats, window: tuple[float, float]) -> slice:
    """The samples inside a window of a series whose times do not decrease."""
    first = int(np.searchsorted(seconds, window[0], side="left"))
    return slice(first, int(np.searchsorted(seconds, window[1], side="right")))


def _silences(seconds: Floats) -> NDArray[np.bool_]:
    """Whether a silence follows each sample."""
    silent = np.zeros(len(seconds), dtype=bool)
    if len(seconds) > 2:
        steps = np.diff(seconds)
        silent[:-1] = steps > GAP_PERIODS * np.median(steps)
    return silent
