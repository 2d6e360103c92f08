"""JSON records on disk: written whole and strict, set aside when they turn out torn."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from profiles.files import write_json
from profiles.records import Record

AnyRecord = TypeVar("AnyRecord", bound=Record)


def write_record(path: Path, record: Record) -> None:
    """Write a record.

    Raises:
        ValueError: a free field such as `spec` holds NaN or Infinity.
        TypeError: a free field holds something JSON has no word for.
        StorageError: the file cannot be written.
    """
    # NOTE mode="json" would turn a NaN in a free field into null without a word.
    write_json(path, record.model_dump())


def read_or_set_aside(path: Path, kind: type[AnyRecord]) -> AnyRecord | None:
    """Read a record; None when it is missing, or torn or invalid and therefore set aside."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        set_aside(path)
        return None


def set_aside(path: Path) -> None:
    """Rename to `<name>.torn`; on a read-only disk the file stays and is passed over."""
    with contextlib.suppress(OSError):
        path.replace(path.with_name(path.name + ".torn"))
