"""The imports of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dashboard.data.import_file import imports_dir
from profiles.nsight import CaptureSummary, list_imports, read_summary
from profiles.store import RunFolder

HASH_LETTERS = 12
FORMATS = {
    "nsys_sqlite": "Nsight Systems export",
    "nsys_report": "Nsight Systems report",
    "nsys_stats": "nsys stats",
    "ncu_csv": "Nsight Compute CSV",
    "ncu_report": "Nsight Compute report",
    "kineto": "PyTorch trace",
}


@dataclass(frozen=True)
class ImportedCapture:
    """One import: its folder, named by the hash of the file, and its summary."""

    folder: Path
    summary: CaptureSummary

    @property
    def key(self) -> str:
        """Short name of the import in addresses."""
        return self.folder.name[:HASH_LETTERS]

    @property
    def label(self) -> str:
        """What a chooser shows."""
        what = FORMATS.get(self.summary.format, self.summary.format)
        return f"{self.summary.file_name} ({what})"

    @property
    def version(self) -> tuple[str, int]:
        """Changes whenever the file is imported again."""
        return str(self.folder), (self.folder / "summary.json").stat().st_mtime_ns


def captures_of(run: RunFolder) -> list[ImportedCapture]:
    """Every whole import, the newest first."""
    found = ((folder, read_summary(folder)) for folder in list_imports(imports_dir(run)))
    return [ImportedCapture(folder, summary) for folder, summary in found if summary]
