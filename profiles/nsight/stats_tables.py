"""The tables of `nsys stats`: where they are, which report each is, units taken off headers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from profiles.nsight.cell_numbers import NumberStyle, looks_numeric, number_style
from profiles.nsight.reading import Reading
from profiles.nsight.text_tables import (
    DELIMITERS,
    TextTable,
    aligned_cells,
    aligned_spans,
    json_tables,
    split_cells,
)

_ANNOUNCED = re.compile(
    r"Executing '(?P<step>\w+)' stats report|reports[/\\](?P<script>\w+)\.py"
    r"|^\s*\*\*.*\((?P<title>\w+)\):?\s*$"
)
_SKIPPED = re.compile(r"SKIPPED: .*?does not contain (.+?)\.?\s*$")
_NAMES = {"name", "operation", "range", "kernel name", "nvtx range"}
_QUANTITIES = {"total time", "total", "start", "duration", "instances", "kernel start", "count"}
_UNITS = {
    "ns": 1.0,
    "nsec": 1.0,
    "us": 1e3,
    "usec": 1e3,
    "ms": 1e6,
    "msec": 1e6,
    "s": 1e9,
    "sec": 1e9,
    "b": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "kib": 1024.0,
    "mib": 1024.0**2,
    "gib": 1024.0**3,
}


@dataclass
class StatsTable:
    """One report table with plain lower-case headers; numbers come out in ns and bytes."""

    report: str | None
    cells: dict[str, list[str]]
    units: dict[str, str]
    style: NumberStyle
    rows: int
    unread: int = 0  # cells that look like numbers but are none in the file's style

    def text(self, name: str) -> list[str | None]:
        """Cells of a column; None where empty, or where there is no such column."""
        return [cell or None for cell in self.cells.get(name, [""] * self.rows)]

    def scale(self, name: str) -> float:
        """What one printed unit of a column is in ns or bytes."""
        return _UNITS.get(self.units.get(name, "").lower(), 1.0)

    def numbers(self, *names: str) -> list[float | None]:
        """The first of the columns there is, times in ns, sizes in bytes."""
        name = next((name for name in names if name in self.cells), None)
        if name is None:
            return [None] * self.rows
        scale = self.scale(name)
        values = [self.style.number(cell) for cell in self.cells[name]]
        self.unread += sum(
            value is None and looks_numeric(cell)
            for value, cell in zip(values, self.cells[name], strict=True)
        )
        return [None if value is None else value * scale for value in values]

    def integers(self, *names: str) -> list[int | None]:
        """As `numbers`, rounded; None beyond what an int64 holds."""
        return [
            round(value) if value is not None and abs(value) < 2**62 else None
            for value in self.numbers(*names)
        ]

    def has(self, *names: str) -> bool:
        """Whether every one of these columns is there."""
        return all(name in self.cells for name in names)


def stats_tables(reading: Reading, text: str) -> Iterator[StatsTable]:
    """Every report table in the output of `nsys stats`."""
    tables = [*json_tables(text)] or [*_line_tables(reading, text.splitlines())]
    style = number_style(cell for table in tables for row in table.rows for cell in row[:-1])
    if style.contradicted:
        reading.problem("numbers are written in two ways; those of the rarer one are unknown")
    for table in tables:
        table.note_damage(reading)
        if len(table.rows) > reading.max_rows:
            reading.problem(f"only the first {reading.max_rows:,} rows of a table were read")
        named = [_plain(header) for header in table.header]
        rows = table.rows[: reading.max_rows]
        yield StatsTable(
            report=table.report,
            cells={name: [row[i] for row in rows] for i, (name, _) in enumerate(named)},
            units={name: unit for name, unit in named if unit},
            style=style,
            rows=len(rows),
        )


def _plain(header: str) -> tuple[str, str]:
    found = re.fullmatch(r"(.*?)\s*\(([^()]*)\)", header.strip())
    return (found[1].strip().lower(), found[2].strip()) if found else (header.strip().lower(), "")


def _is_header(cells: Sequence[str]) -> bool:
    names = {_plain(cell)[0] for cell in cells}
    return len(cells) >= 3 and bool(names & _NAMES) and bool(names & _QUANTITIES)


def _line_tables(reading: Reading, lines: list[str]) -> Iterator[TextTable]:
    report: str | None = None
    at = 0
    while at < len(lines):
        line = lines[at]
        if announced := _ANNOUNCED.search(line):
            report = next(name for name in announced.groups() if name)
        elif skipped := _SKIPPED.search(line):
            reading.info(f"nsys stats: the capture holds no {skipped[1]}")
        found = _csv_table(lines, at) or _aligned_table(lines, at)
        if found is None:
            at += 1
            continue
        table, at = found
        table.report = report
        yield table


def _csv_table(lines: list[str], at: int) -> tuple[TextTable, int] | None:
    for delimiter in DELIMITERS:
        header = split_cells(lines[at], delimiter)
        if _is_header(header):
            break
    else:
        return None
    table = TextTable(header)
    for place in range(at + 1, len(lines)):
        line = lines[place]
        if not line.strip() or _ends_table(line):
            return table, place
        cells = split_cells(line, delimiter)
        if _is_header(cells):
            return table, place
        table.add(cells)
    return table, len(lines)


def _aligned_table(lines: list[str], at: int) -> tuple[TextTable, int] | None:
    spans = aligned_spans(lines[at])
    above = next((lines[i] for i in range(at - 1, max(at - 3, -1), -1) if lines[i].strip()), None)
    if spans is None or above is None:
        return None
    table = TextTable(aligned_cells(above, spans))
    if not _is_header(table.header):
        return None
    for place in range(at + 1, len(lines)):
        line = lines[place]
        if _ends_table(line) or aligned_spans(line):
            return table, place
        if line.strip():
            # A name that ran over several lines leaves its numbers out: no row of the table.
            cells = aligned_cells(line, spans)
            table.add(cells if cells[0] else [])
    return table, len(lines)


def _ends_table(line: str) -> bool:
    return bool(_ANNOUNCED.search(line) or _SKIPPED.search(line)) or line.startswith("Generated:")
