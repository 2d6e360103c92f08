"""Nsight Compute reports (.ncu-rep), printed as CSV by a local `ncu`."""

from __future__ import annotations

from profiles.nsight.content import decode
from profiles.nsight.local_tool import run_tool
from profiles.nsight.ncu_csv import read_csv
from profiles.nsight.reading import Reading

_WITHOUT = (
    "On a machine with Nsight Compute, the version that made the report or a newer one: "
    "ncu --import REPORT.ncu-rep --page raw --csv --print-units base > REPORT.csv, then import "
    "the CSV file."
)


def read(reading: Reading) -> None:
    """Print the report's raw page and read it. Raises UnreadableProfile."""
    reading.progress("ncu --import", 0.0)
    arguments = ["--import", str(reading.path.absolute()), "--page", "raw", "--csv"]
    printed = run_tool("ncu", [*arguments, "--print-units", "base"], reading.path, _WITHOUT)
    read_csv(reading, decode(printed)[0])
