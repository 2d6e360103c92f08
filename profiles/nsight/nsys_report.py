"""Nsight Systems reports (.nsys-rep, .qdrep), exported to SQLite by a local `nsys`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from profiles.errors import UnreadableProfile
from profiles.nsight.local_tool import run_tool
from profiles.nsight.nsys_sqlite import read_export
from profiles.nsight.reading import Reading

_WITHOUT = (
    "On a machine with Nsight Systems, the version that made the report or a newer one: "
    "nsys export --type sqlite REPORT.nsys-rep, then import the .sqlite file."
)


def read(reading: Reading) -> None:
    """Export the report and read the export. Raises UnreadableProfile."""
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "report.sqlite"
        reading.progress("nsys export", 0.0)
        arguments = ["export", "--type", "sqlite", "--output", str(exported), "--force-overwrite"]
        run_tool("nsys", [*arguments, "true", str(reading.path.absolute())], reading.path, _WITHOUT)
        if not exported.is_file():
            raise UnreadableProfile(reading.path, "`nsys` wrote no export", _WITHOUT)
        read_export(reading, exported)
