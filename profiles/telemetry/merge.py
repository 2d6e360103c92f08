"""Put the parts of a telemetry folder into one file, with its overview beside it."""

from __future__ import annotations

from pathlib import Path

from profiles.tables import write_table
from profiles.telemetry.overview import overview_path, write_overview
from profiles.telemetry.parts import part_number, part_paths, whole_parts

ROWS_A_GROUP = 262_144  # a window of a long trial is read from a few of its groups


def merge_parts(folder: Path) -> None:
    """Put all parts into one file, which long trials are read from many times faster.

    `merged-<n>.parquet` holds the parts up to n. A process killed before it has deleted those
    leaves them behind, and readers pass them over. Raises StorageError.
    """
    paths = part_paths(folder)
    if len(paths) < 2:
        return
    merged = folder / f"merged-{part_number(paths[-1]):06d}.parquet"
    write_table(merged, whole_parts(folder), rows_a_group=ROWS_A_GROUP)
    write_overview(folder, merged)
    for path in paths:
        path.unlink(missing_ok=True)
        overview_path(path).unlink(missing_ok=True)
