"""Find tables in text: CSV, aligned columns under dashes, or lists of JSON objects.

`nsys stats` and `nsys profile --stats=true` mix them with the program's own output, so a table is
found by its header, never by its line number, and several may follow each other.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from profiles.nsight.reading import Reading

DELIMITERS = (",", ";", "\t", "|")
_JSON_LIST = re.compile(r"^\s*\[\s*(?=\{)", re.MULTILINE)
_DASHES = re.compile(r"\s*-{2,}(\s+-{2,})+\s*")


@dataclass
class TextTable:
    """One table: cells as text, `report` the name announced before it, `skipped` bad rows."""

    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    report: str | None = None
    skipped: int = 0

    def add(self, row: list[str], short: int | None = None) -> None:
        """Keep a row of the header's width, or of exactly `short` cells; others are damaged."""
        if len(row) in (len(self.header), short):
            self.rows.append(row + [""] * (len(self.header) - len(row)))
        else:
            self.skipped += 1

    def note_damage(self, reading: Reading) -> None:
        """Say what of the table could not be read."""
        if self.skipped:
            reading.problem(f"{self.skipped} damaged rows of a table were left out")
        if not self.rows:
            reading.problem("a table without rows: the output was cut short")
        if len(set(self.header)) < len(self.header):
            reading.problem("two columns of a table have the same name")

    def column(self, name: str) -> list[str]:
        """Cells under a header."""
        place = self.header.index(name)
        return [row[place] for row in self.rows]


def split_cells(line: str, delimiter: str) -> list[str]:
    """Cells of one CSV line; none when its quotes are broken or never closed."""
    try:
        return next(csv.reader([line.replace("\0", "")], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


def aligned_spans(line: str) -> list[tuple[int, int]] | None:
    """Column positions of a line of dashes, or None for any other line."""
    if not _DASHES.fullmatch(line):
        return None
    return [found.span() for found in re.finditer(r"-+", line)]


def aligned_cells(line: str, spans: list[tuple[int, int]]) -> list[str]:
    """Cells of a line by the columns above it; the last one reaches to the end of the line."""
    ends = [end for _, end in spans[:-1]] + [len(line)]
    starts = [0] + [end for _, end in spans[:-1]]
    return [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def json_tables(text: str) -> Iterator[TextTable]:
    """Every list of objects in the text, each as a table of its first object's keys."""
    decoder = json.JSONDecoder(strict=False)
    at = 0
    while found := _JSON_LIST.search(text, at):
        begin = text.index("[", found.start())
        objects, at, whole = _objects(decoder, text, begin + 1)
        if objects:
            table = TextTable([str(key) for key in objects[0]])
            for item in objects:
                table.add([_cell(value) for value in item.values()])
            table.skipped += not whole
            yield table


def _objects(
    decoder: json.JSONDecoder, text: str, at: int
) -> tuple[list[dict[str, object]], int, bool]:
    """Objects of a list up to its end or the first damage, and whether the end was reached."""
    objects: list[dict[str, object]] = []
    gap = re.compile(r"[\s,]*")
    while True:
        at = gap.match(text, at).end()  # type: ignore[union-attr]
        if text.startswith("]", at):
            return objects, at + 1, True
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return objects, at + 1, False
        if isinstance(value, dict):
            objects.append(value)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return text.encode("utf-8", "replace").decode()
