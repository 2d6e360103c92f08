"""Text that a retrieval drafter may copy from, read from files.

A store is a file or a folder of files, each plain text or JSON Lines, told apart by content. Of
JSON Lines every string of a row is a document, of plain text the whole file is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.errors import BadInput
from tuner.workloads.source_text import decode_source


def read_store(path: Path) -> list[str]:
    """Return the documents of a file, or of all files under a folder, in the order of their names.

    Raises:
        BadInput: nothing there, not UTF-8 (file and line are named), a broken row, or no text.
    """
    if not path.exists():
        raise _bad(path, "does not exist; give a file or a folder of text or JSON Lines")
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    documents = [text for file in files for text in _read(file) if text.strip()]
    if not documents:
        raise _bad(path, "holds no text to copy from")
    return documents


def _read(path: Path) -> Iterator[str]:
    try:
        text = decode_source(path, path.read_bytes())
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}") from error
    except BadInput as error:
        raise BadInput("drafter", error.value, error.remedy) from error
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if _row(first) is None:
        yield text
        return
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = _row(line)
        if row is None:
            raise _bad(f"{path} line {number}", "is no JSON object, the first line is one")
        yield from _strings(row)


def _row(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for part in value.values() for text in _strings(part))
    elif isinstance(value, list):
        yield from (text for part in value for text in _strings(part))


def _bad(where: Path | str, remedy: str) -> BadInput:
    return BadInput("drafter", str(where), remedy)
