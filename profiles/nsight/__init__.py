"""Nsight and PyTorch profiles, whatever wrote them, as one normalised result.

capture = read_capture(path)           # summary and tables in memory
folder = write_import(imports, path)   # the same on disk, under the file's hash
"""

from profiles.errors import UnreadableProfile
from profiles.nsight.capture import Capture
from profiles.nsight.formats import read_capture
from profiles.nsight.imports import list_imports, read_summary, read_table, write_import
from profiles.nsight.schemas import SCHEMAS
from profiles.nsight.summary import CaptureSummary

__all__ = [
    "SCHEMAS",
    "Capture",
    "CaptureSummary",
    "UnreadableProfile",
    "list_imports",
    "read_capture",
    "read_summary",
    "read_table",
    "write_import",
]
