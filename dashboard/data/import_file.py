"""Take a profile into a run: from an upload, or from a path under the allowed root."""

from __future__ import annotations

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from profiles.files import write_bytes
from profiles.nsight import write_import
from profiles.nsight.reading import Progress
from profiles.store import RunFolder
from tuner.errors import BadInput
from tuner.runs import run_store

ROOT_VARIABLE = "TUNER_IMPORT_ROOT"
_UNSAFE = re.compile(r"[^\w.\- ]")
_LONGEST_NAME = 100


def imports_dir(run: RunFolder) -> Path:
    """Where the imports of a run are kept."""
    return run.path / "imports"


def import_root() -> Path:
    """The folder that paths may name: $TUNER_IMPORT_ROOT, else the runs folder."""
    return Path(os.environ.get(ROOT_VARIABLE) or run_store().root).resolve()


def allowed_file(text: str) -> Path:
    """The file that `text` names, relative to the root or in full, symbolic links followed.

    Raises:
        BadInput: it lies outside the root, or there is no such file.
    """
    root = import_root()
    if "\0" in text or not text.strip():
        raise BadInput("path", text, f"name a file below {root}")
    path = (root / text.strip()).resolve()
    if not path.is_relative_to(root):
        raise BadInput(
            "path", text, f"lies outside {root}; move the file there, set {ROOT_VARIABLE}, "
            "or upload it"
        )  # fmt: skip
    if not path.is_file():
        raise BadInput("path", text, f"there is no such file below {root}")
    return path


def import_upload(run: RunFolder, name: str, data: bytes, progress: Progress) -> Path:
    """Read an uploaded file and return the folder of its import.

    Raises:
        UnreadableProfile: nothing in it can be read.
        StorageError: it cannot be kept.
    """
    safe_name = _UNSAFE.sub("_", Path(name).name)[-_LONGEST_NAME:] or "upload"
    with TemporaryDirectory(prefix="tuner-upload-") as folder:
        file = Path(folder) / safe_name
        write_bytes(file, data)
        return write_import(imports_dir(run), file, progress)
