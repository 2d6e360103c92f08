"""Write files whole: a reader sees the old content or the new, never a part of it.

The bytes go to a hidden temporary name in the same folder, are synced, and take the final name by
rename, which POSIX makes atomic within one file system. A process killed in the middle leaves at
most a `.<name>.*.tmp`, which no reader of this project looks at.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

from profiles.errors import StorageError

_REMEDIES = {
    errno.ENOSPC: ("no disk space left", "Free some space or choose another folder for the runs."),
    errno.EDQUOT: ("disk quota used up", "Free some space or choose another folder for the runs."),
    errno.EROFS: ("the file system is read-only", "Choose a writable folder for the runs."),
    errno.EACCES: ("permission denied", "Make the folder writable or choose another one."),
    errno.EPERM: ("permission denied", "Make the folder writable or choose another one."),
    errno.ENOENT: (
        "the folder does not exist",
        "Create the folder, or check that it still exists.",
    ),
}


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` whole and durably.

    Raises:
        StorageError: the disk is full, read-only or failing; nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise storage_error(path, error) from error
        raise


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, whole. Raises StorageError like `write_bytes`."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write `value` as strict JSON, whole.

    Raises:
        ValueError: `value` holds a NaN or an Infinity; the file is untouched.
        StorageError: as `write_bytes`.
    """
    write_text(path, json.dumps(value, allow_nan=False, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read strict JSON.

    Raises:
        ValueError: torn, not JSON, or holding NaN or Infinity (`json.JSONDecodeError` is one).
        OSError: the file cannot be opened.
    """
    return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)


def make_folder(path: Path) -> None:
    """Create a folder and its parents where missing. Raises StorageError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: Path, error: OSError) -> StorageError:
    """Say an OSError in words, with what to do about it."""
    reason, remedy = _REMEDIES.get(
        error.errno or 0, (error.strerror or str(error), "Check the disk and its permissions.")
    )
    return StorageError(path, reason, remedy)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not strict JSON")
