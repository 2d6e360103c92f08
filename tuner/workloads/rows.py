"""The rows of a workload file, each knowing its line, whatever the file is written in.

JSON Lines, one JSON array, or CSV with a header: told apart by the first character.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import BadInput

ONE_OBJECT_A_LINE = "write one JSON object a line, or one JSON array of objects"


def bad_line(path: Path, line: int, remedy: str) -> BadInput:
    """Return the error that names file and line."""
    return BadInput("workload", f"{path} line {line}", remedy)


@dataclass(frozen=True, slots=True)
class Row:
    """One record of the file, with the line (from 1) on which it stands."""

    path: Path
    line: int
    fields: dict[str, Any]

    def error(self, remedy: str) -> BadInput:
        """Return the error that names this row."""
        return bad_line(self.path, self.line, remedy)

    def text(self, key: str) -> str:
        """Return the string under `key`. Raises BadInput where it is missing or no text."""
        return self.as_text(self.fields.get(key), key)

    def items(self, key: str) -> list[Any]:
        """Return the list under `key`. Raises BadInput where it is missing or no list."""
        value = self.fields.get(key)
        if not isinstance(value, list):
            raise self.error(f"`{key}` must be a list, not {_kind(value)}")
        return value

    def count(self, key: str) -> int:
        """Return the whole number >= 0 under `key`. Raises BadInput otherwise."""
        value = self.fields.get(key)
        if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(f"`{key}` must be a whole number of at least 0, not {value!r}")
        return value

    def as_text(self, value: object, name: str) -> str:
        """Return `value` if it is text that can be stored as UTF-8, or raise BadInput."""
        if not isinstance(value, str):
            raise self.error(f"`{name}` must be text, not {_kind(value)}")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise self.error(f"`{name}` holds half of a surrogate pair; mend the escape") from error
        return value

    def label(self, *keys: str) -> str:
        """Return the first of `keys` that is present as text, or the line number."""
        for key in keys:
            value = self.fields.get(key)
            if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
                return self.as_text(str(value), key)
        return f"line-{self.line}"

    def category(self, otherwise: str) -> str:
        """Return the text under `category`, or `otherwise` where it is missing or blank."""
        value = self.fields.get("category")
        return otherwise if value in (None, "") else self.as_text(value, "category")


def split_rows(path: Path, text: str) -> Iterator[Row]:
    """Yield the rows of `text` in order; blank lines are passed over.

    Raises:
        BadInput: invalid JSON or CSV, or a JSON value that is no object, with its line.
    """
    start = text.lstrip()[:1]
    if start == "[":
        return _array_rows(path, text)
    if start == "{":
        return _json_line_rows(path, text)
    return _csv_rows(path, text)


def _json_line_rows(path: Path, text: str) -> Iterator[Row]:
    # NOTE: str.splitlines would also split at U+2028, which JSON allows inside strings.
    for line, content in enumerate(text.split("\n"), start=1):
        if content.strip():
            try:
                value = json.loads(content)
            except (ValueError, RecursionError) as error:
                raise bad_line(
                    path, line, f"invalid JSON ({_why(error)}); {ONE_OBJECT_A_LINE}"
                ) from error
            yield _object_row(path, line, value)


def _array_rows(path: Path, text: str) -> Iterator[Row]:
    """Decode one array item by item, so that every item keeps its line."""
    decoder = json.JSONDecoder()
    position = _skip_blank(text, text.index("[") + 1)
    line, counted = 1, 0
    while text[position : position + 1] != "]":
        line, counted = line + text.count("\n", counted, position), position
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            at = error.lineno if isinstance(error, json.JSONDecodeError) else line
            raise bad_line(path, at, f"invalid JSON ({_why(error)})") from error
        yield _object_row(path, line, value)
        position = _after_item(path, text, position)
    if text[position + 1 :].strip():
        raise bad_line(path, text.count("\n", 0, position) + 1, "text after the array's `]`")


def _after_item(path: Path, text: str, position: int) -> int:
    """Return where the next item or the closing bracket stands."""
    position = _skip_blank(text, position)
    mark = text[position : position + 1]
    if mark == ",":
        return _skip_blank(text, position + 1)
    if mark != "]":
        found = repr(mark) if mark else "the end of the file"
        line = text.count("\n", 0, position) + 1
        raise bad_line(path, line, f"invalid JSON (`,` or `]` expected, {found} found)")
    return position


def _skip_blank(text: str, position: int) -> int:
    while text[position : position + 1] in (" ", "\t", "\r", "\n"):
        position += 1
    return position


def _csv_rows(path: Path, text: str) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for fields in reader:
            if None in fields or None in fields.values():
                raise bad_line(
                    path,
                    reader.line_num,
                    f"must have the header's {len(reader.fieldnames or ())} columns",
                )
            yield Row(path, reader.line_num, fields)
    except csv.Error as error:
        line = reader.reader.line_num  # the DictReader's own number stops at the last good row
        raise bad_line(path, line, f"invalid CSV ({error})") from error


def _object_row(path: Path, line: int, value: object) -> Row:
    if not isinstance(value, dict):
        raise bad_line(path, line, f"holds {_kind(value)}; {ONE_OBJECT_A_LINE}")
    return Row(path, line, value)


def _kind(value: object) -> str:
    names = {type(None): "missing", dict: "an object", list: "a list", str: "text", bool: "a flag"}
    return names.get(type(value), "a number")


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
