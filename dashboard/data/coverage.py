"""How much of each stretch of time intervals cover."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def covered_pct(starts: Floats, ends: Floats, edges: Floats) -> Floats:
    """Percent of each bucket between `edges` that the intervals cover; overlap counts once.

    Nothing covers a bucket without a width.
    """
    if not len(starts):
        return np.zeros(len(edges) - 1)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    begins = np.append(True, starts[1:] > ends[:-1])
    starts, ends = starts[begins], ends[np.append(np.flatnonzero(begins)[1:] - 1, len(ends) - 1)]
    before = np.append(0.0, np.cumsum(ends - starts))
    times = np.column_stack([starts, ends]).ravel()
    totals = np.column_stack([before[:-1], before[1:]]).ravel()
    widths = np.maximum(np.diff(edges), np.finfo(np.float64).tiny)
    return 100 * np.diff(np.interp(edges, times, totals)) / widths
