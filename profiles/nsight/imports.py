"""Imports on disk: `imports/<sha256>/summary.json` and one Parquet file a table."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from profiles.errors import UnreadableProfile
from profiles.files import make_folder
from profiles.nsight.formats import read_capture
from profiles.nsight.reading import Progress, no_progress
from profiles.nsight.schemas import SCHEMAS
from profiles.nsight.summary import CaptureSummary
from profiles.record_files import read_or_set_aside, write_record
from profiles.tables import write_table


def write_import(imports_dir: Path, file: Path, progress: Progress = no_progress) -> Path:
    """Read `file` and keep it, normalised, under the hash of its bytes; return that folder.

    The summary is written last: a folder without one is an import that was cut short. The same
    file imported again replaces its own tables.

    Raises:
        UnreadableProfile: nothing can be read; nothing is written.
        StorageError: the folder cannot be written.
    """
    capture = read_capture(file, progress=progress)
    folder = imports_dir / _sha256(file)
    make_folder(folder)
    for name in SCHEMAS:
        progress(f"writing {name}", 0.0)
        path = folder / f"{name}.parquet"
        if name in capture.tables:
            write_table(path, capture.tables[name])
        else:
            path.unlink(missing_ok=True)
    write_record(folder / "summary.json", capture.summary)
    return folder


def list_imports(imports_dir: Path) -> list[Path]:
    """Folders of whole imports, the newest first."""
    summaries = imports_dir.glob("*/summary.json")
    newest = sorted(summaries, key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.parent for path in newest]


def read_summary(folder: Path) -> CaptureSummary | None:
    """The summary of an import; None when it is missing or torn."""
    return read_or_set_aside(folder / "summary.json", CaptureSummary)


def read_table(folder: Path, name: str) -> pa.Table:
    """One table of an import by its name in `SCHEMAS`; without rows when the file had none.

    Raises:
        ValueError: the Parquet file is torn (`pyarrow.ArrowInvalid` is a ValueError).
    """
    path = folder / f"{name}.parquet"
    return pq.read_table(path) if path.exists() else SCHEMAS[name].empty_table()


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UnreadableProfile(
            path, f"it cannot be read ({error.strerror})", "Try again."
        ) from error
