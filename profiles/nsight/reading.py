"""What an importer fills while it reads one file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa

from profiles.nsight.schemas import SCHEMAS
from profiles.nsight.summary import GpuDescription, Level, Note

MAX_ROWS = 5_000_000  # of one table; more are left out with a note
MAX_NOTES = 100

Progress = Callable[[str, float], None]  # what is being read, and the share of it done, 0 to 1


def no_progress(_what: str, _share: float) -> None:
    """Tell nobody."""


@dataclass
class Reading:
    """One file being read: tables as they come, notes, and facts about the capture.

    `missing` gives the reason why a table or a number is not there.
    """

    path: Path
    max_rows: int = MAX_ROWS
    progress: Progress = no_progress
    tables: dict[str, pa.Table] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    gpus: list[GpuDescription] = field(default_factory=list)
    metric_sources: dict[str, str] = field(default_factory=dict)  # metric -> the tool's spelling
    tool_version: str | None = None
    schema_version: str | None = None
    captured_by: str | None = None
    origin_epoch_ns: int | None = None
    duration_ns: int | None = None
    cuda_graph_mode: Literal["graph", "node"] | None = None

    def info(self, text: str) -> None:
        """Note something good to know."""
        self._note("info", text)

    def warn(self, text: str) -> None:
        """Note something that limits what the numbers say."""
        self._note("warning", text)

    def problem(self, text: str) -> None:
        """Note that something in the file could not be read: the capture is partial."""
        self._note("problem", text)

    def _note(self, level: Level, text: str) -> None:
        note = Note(level=level, text=text)
        if note not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(note)

    def add(self, name: str, columns: dict[str, pa.Array | pa.ChunkedArray]) -> None:
        """Keep a table; columns of its schema that are not given are null. Empty ones are left."""
        rows = len(next(iter(columns.values())))
        if rows == 0:
            return
        schema = SCHEMAS[name]
        arrays = [
            _as_type(columns[column.name], column.type)
            if column.name in columns
            else pa.nulls(rows, column.type)
            for column in schema
        ]
        self.tables[name] = pa.table(arrays, schema=schema)

    def add_rows(self, name: str, columns: list[str], rows: list[tuple[object, ...]]) -> None:
        """Keep a table given row by row."""
        if not rows:
            return
        schema = SCHEMAS[name]
        arrays: dict[str, pa.Array] = {}
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            wanted = schema.field(column).type
            plain = pa.string() if pa.types.is_dictionary(wanted) else wanted
            arrays[column] = pa.array(values, type=plain)
        self.add(name, arrays)


def _as_type(values: pa.Array | pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if values.type == wanted:
        return values
    if pa.types.is_dictionary(wanted) and not pa.types.is_dictionary(values.type):
        return values.dictionary_encode()
    return values.cast(wanted)
