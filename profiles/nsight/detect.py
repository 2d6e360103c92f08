"""Which format a file has, by its content; its suffix says nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from profiles.errors import UnreadableProfile
from profiles.nsight.content import decode, head_of

Format = Literal["nsys_sqlite", "nsys_report", "nsys_stats", "ncu_csv", "ncu_report", "kineto"]

_ACCEPTED = (
    "Give an Nsight Systems .sqlite or .nsys-rep, the output of `nsys stats`, an Nsight Compute "
    "CSV or .ncu-rep, or a PyTorch (Kineto) trace."
)
_REFUSED = {
    b"version https://git-lfs": ("a Git LFS pointer, not the file", "Fetch it: git lfs pull."),
    b"PK\x03\x04": ("a zip archive", "Unpack it and give one file."),
    b"PAR1": ("a Parquet file", _ACCEPTED),
    b"\x89HDF": ("an HDF5 export", "Export SQLite: nsys export --type sqlite REPORT.nsys-rep."),
    b"\x80\x04": ("a Python pickle, which is never opened", _ACCEPTED),
    b"\x80\x05": ("a Python pickle, which is never opened", _ACCEPTED),
}
_NCU = re.compile(
    r"Kernel Name\b.{0,400}?(Metric Name|Process|Context|Grid)|Process ID\b.{0,200}?Kernel"
)
_NCU_LOG = re.compile(r"^==(PROF|ERROR|WARNING)==", re.MULTILINE)
_STATS = re.compile(
    r"Time ?\(%\)|Total Time ?\(|Instances\b|Num Calls|\(ns\)|Total \((MB|B|KB|MiB)\)|CorrId"
    r"|\.sqlite does not contain|stats report|Processing \["
)


def detect(path: Path) -> Format:
    """Name the format of a file.

    Raises:
        UnreadableProfile: it cannot be opened, or it is none that we know.
    """
    head = head_of(path)
    if head.startswith(b"SQLite format 3\x00"):
        return "nsys_sqlite"
    if head.startswith(b"NVIDIA Tegra Profiler Re"):
        return "nsys_report"
    if head.startswith(b"NVR\x00"):
        return "ncu_report"
    for start, (what, remedy) in _REFUSED.items():
        if head.startswith(start):
            raise UnreadableProfile(path, f"this is {what}", remedy)
    text, _ = decode(head)
    found = _of_text(text)
    if found is None:
        raise UnreadableProfile(path, "its content is no profile that we know", _ACCEPTED)
    return found


def _of_text(text: str) -> Format | None:
    start = text.lstrip()[:1]
    if start == "{" and not _STATS.search(text[:200]):
        return "kineto"
    if start == "[" and re.match(r"\s*\[\s*(\{|$)", text):
        return "nsys_stats" if _STATS.search(text) and '"ph"' not in text else "kineto"
    if _NCU.search(text) or _NCU_LOG.search(text):
        return "ncu_csv"
    return "nsys_stats" if _STATS.search(text) else None
