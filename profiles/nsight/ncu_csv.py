"""Nsight Compute CSV: details page, raw page, and the older `--metrics` form.

The tool's own lines, the program's output and several tables can stand before and between. The
same display name has different units in two sections, so a metric is known by section and name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from profiles.errors import UnreadableProfile
from profiles.nsight.cell_numbers import NumberStyle, looks_numeric, number_style
from profiles.nsight.content import note_open_end, read_text
from profiles.nsight.ncu_launches import LaunchTables
from profiles.nsight.reading import Reading
from profiles.nsight.text_tables import DELIMITERS, TextTable, split_cells

IDENTITY = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Kernel Time",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)
_DENIED = "ERR_NVGPUCTRPERM"
_NONE_PROFILED = re.compile(r"==WARNING== No kernels were profiled")
_TOOL_LINE = re.compile(r"^==(WARNING|ERROR)== (.*)", re.MULTILINE)


def read(reading: Reading) -> None:
    """Read a CSV file. Raises UnreadableProfile when there is no table in it."""
    read_csv(reading, read_text(reading))


def read_csv(reading: Reading, text: str) -> None:
    """Read the CSV output of `ncu`. Raises UnreadableProfile when there is no table in it."""
    for level, message in _TOOL_LINE.findall(text)[:20]:
        reading.warn(f"Nsight Compute {level.lower()}: {message.strip()[:300]}")
    note_open_end(reading, text)
    tables = list(_tables(text.splitlines()))
    if not tables and _NONE_PROFILED.search(text):
        reading.missing["kernels"] = "Nsight Compute profiled no kernels"
        return
    if not tables:
        raise _unreadable(reading, text)
    style = number_style(cell for table in tables for cell in _number_cells(table))
    if style.contradicted:
        reading.problem("numbers are written in two ways; those of the rarer one are unknown")
    launches = LaunchTables(reading)
    for table in tables:
        table.note_damage(reading)
        if "Metric Name" in table.header:
            _read_details(reading, table, style, launches)
        else:
            _read_raw(table, style, launches)
    launches.finish()


def _unreadable(reading: Reading, text: str) -> UnreadableProfile:
    if _DENIED in text:
        return UnreadableProfile(
            reading.path,
            "Nsight Compute was not allowed to read the GPU's counters (ERR_NVGPUCTRPERM)",
            "Run as administrator, or load the driver with NVreg_RestrictProfilingToAdminUsers=0.",
        )
    return UnreadableProfile(
        reading.path,
        "no table of Nsight Compute could be found in it",
        "Write one: ncu --import REPORT.ncu-rep --page raw --csv.",
    )


def _tables(lines: list[str]) -> Iterator[TextTable]:
    table: TextTable | None = None
    delimiter, short = ",", None
    for line in lines:
        if "Kernel Name" in line and (found := _header(line)):
            if table is not None:
                yield table
            header, delimiter = found
            table = TextTable(header)
            # NOTE rows of metrics end after the comma that follows their value, before the rules.
            short = header.index("Rule Name") + 1 if "Rule Name" in header else None
        elif table is not None and line.strip() and not line.startswith("=="):
            table.add(split_cells(line, delimiter), short)
    if table is not None:
        yield table


def _header(line: str) -> tuple[list[str], str] | None:
    for delimiter in DELIMITERS:
        cells = [cell.strip() for cell in split_cells(line, delimiter)]
        if "ID" in cells and "Kernel Name" in cells and len(cells) > 5:
            return cells, delimiter
    return None


def _number_cells(table: TextTable) -> Iterator[str]:
    if "Metric Value" in table.header:
        yield from table.column("Metric Value")
        return
    metrics = [place for place, name in enumerate(table.header) if name not in IDENTITY]
    for row in table.rows:
        yield from (row[place] for place in metrics)


def _read_details(
    reading: Reading, table: TextTable, style: NumberStyle, launches: LaunchTables
) -> None:
    if "Metric Value" not in table.header:
        reading.problem("the table has no column 'Metric Value'")
    for cells in table.rows:
        row = dict(zip(table.header, cells, strict=True))
        launch = launches.launch(row)
        if row["Metric Name"]:
            value = row.get("Metric Value", "")
            launches.metric(
                launch,
                row.get("Section Name", ""),
                row["Metric Name"],
                row.get("Metric Unit"),
                style.number(value),
                value,
                unread=looks_numeric(value) and style.number(value) is None,
            )
        elif row.get("Rule Description"):
            launches.advice(row.get("Rule Name", ""), row["Rule Description"])


def _read_raw(table: TextTable, style: NumberStyle, launches: LaunchTables) -> None:
    """One row a launch; the row under the header has the units and no ID."""
    metrics = [(place, name) for place, name in enumerate(table.header) if name not in IDENTITY]
    identity = table.header.index("ID")
    units: list[str] | None = None
    for cells in table.rows:
        if not cells[identity]:
            units = cells
            continue
        launch = launches.launch(dict(zip(table.header, cells, strict=True)))
        for place, name in metrics:
            cell = cells[place]
            launches.metric(
                launch,
                "",
                name,
                None if units is None else units[place],
                style.number(cell),
                cell,
                unread=looks_numeric(cell) and style.number(cell) is None,
            )
