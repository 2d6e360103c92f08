"""The importers by format, and the one way to read a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from profiles.nsight import kineto, ncu_csv, ncu_report, nsys_report, nsys_sqlite, nsys_stats
from profiles.nsight.capture import Capture, summarise
from profiles.nsight.detect import Format, detect
from profiles.nsight.reading import MAX_ROWS, Progress, Reading, no_progress

_READERS: dict[Format, Callable[[Reading], None]] = {
    "nsys_sqlite": nsys_sqlite.read,
    "nsys_report": nsys_report.read,
    "nsys_stats": nsys_stats.read,
    "ncu_csv": ncu_csv.read,
    "ncu_report": ncu_report.read,
    "kineto": kineto.read,
}


def read_capture(
    path: Path, *, max_rows: int = MAX_ROWS, progress: Progress = no_progress
) -> Capture:
    """Read a profile of any format that we know.

    A file that can be read in part gives a capture whose summary has state `partial` and says what
    is missing. `max_rows` bounds each table.

    Raises:
        UnreadableProfile: nothing can be read; it says why and what to do.
    """
    file_format = detect(path)
    reading = Reading(path, max_rows=max_rows, progress=progress)
    _READERS[file_format](reading)
    progress("totals", 0.0)
    return summarise(reading, file_format)
