"""Read known tables of an SQLite file that nobody vouches for.

Opened read-only and immutable with `trusted_schema` off; views, virtual tables and generated
columns are passed over, so that no SQL of the file is ever run. Values are taken only where they
have the expected type: SQLite stores anything in any column.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from profiles.errors import UnreadableProfile
from profiles.nsight.reading import Reading

DEADLINE_S = 600.0
_CHUNK = 20_000
_MAX_VALUE_BYTES = 1 << 24
_EXPORT_AGAIN = "Export it again: nsys export --type sqlite REPORT.nsys-rep."


class SqliteSource:
    """The tables of one file; a context manager."""

    def __init__(self, reading: Reading, path: Path) -> None:
        self._reading = reading
        try:
            uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
            self._connection = sqlite3.connect(uri, uri=True)
            self._harden()
            self._tables = self._list_tables()
        except sqlite3.Error as error:
            raise UnreadableProfile(
                reading.path, f"the SQLite file is damaged ({error})", _EXPORT_AGAIN
            ) from error
        self._note_cut_file(path)

    def __enter__(self) -> SqliteSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _harden(self) -> None:
        connection = self._connection
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        end = time.monotonic() + DEADLINE_S
        connection.set_progress_handler(lambda: time.monotonic() > end, 100_000)

    def _list_tables(self) -> dict[str, str]:
        """Real tables by upper-case name; views and virtual tables have no root page."""
        rows = self._connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        ).fetchall()
        return {name.upper(): name for (name,) in rows if isinstance(name, str)}

    def _note_cut_file(self, path: Path) -> None:
        pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
        size = self._connection.execute("PRAGMA page_size").fetchone()[0]
        if path.stat().st_size < pages * size:
            self._reading.problem(
                f"the file is cut short: {path.stat().st_size:,} of {pages * size:,} bytes"
            )

    def find(self, *names: str) -> str | None:
        """The table of the first name there is, as such or with a suffix like `_V2`."""
        for name in names:
            if name in self._tables:
                return self._tables[name]
            pattern = re.compile(re.escape(name) + r"_V(\d{1,4})")
            versions = [match for table in self._tables if (match := pattern.fullmatch(table))]
            if versions:
                return self._tables[max(versions, key=lambda match: int(match[1]))[0]]
        return None

    def read(
        self,
        table: str | None,
        columns: Mapping[str, pa.DataType],
        required: Sequence[str] = (),
        where: str = "",
    ) -> dict[str, pa.ChunkedArray] | None:
        """Read columns of a table by name; those it does not have are null.

        Every version has the `required` ones: None, with a problem noted, when one is missing.
        Damaged pages end the reading with a problem noted; rows before them are kept. None too
        when there is no such table, or it is empty.
        """
        if table is None:
            return None
        present = self._present(table, columns)
        absent = [column for column in required if column not in present]
        if absent:
            self._reading.problem(f"table {table} has no column {', '.join(absent)}")
            return None
        if not present:
            return None
        selected = ", ".join(f'"{column}"' for column in present)
        cursor = self._connection.cursor()
        chunks, rows = self._chunks(
            table, cursor, f"SELECT {selected} FROM {_quoted(table)} {where}", columns, present
        )
        if not rows:
            return None
        return {
            name: pa.chunked_array(chunks[name], kind) if name in present else _nulls(rows, kind)
            for name, kind in columns.items()
        }

    def _present(self, table: str, wanted: Mapping[str, pa.DataType]) -> list[str]:
        try:
            info = self._connection.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
        except sqlite3.Error as error:
            self._reading.problem(f"table {table} cannot be read ({error})")
            return []
        there = {row[1] for row in info}
        return [column for column in wanted if column in there]

    def _chunks(
        self,
        table: str,
        cursor: sqlite3.Cursor,
        sql: str,
        kinds: Mapping[str, pa.DataType],
        present: list[str],
    ) -> tuple[dict[str, list[pa.Array]], int]:
        chunks: dict[str, list[pa.Array]] = {name: [] for name in present}
        total = wrong = 0
        more = True
        while more:
            rows, more = self._some_rows(table, cursor if total else (sql, cursor), total)
            for name, values in zip(present, zip(*rows, strict=True), strict=bool(rows)):
                array, bad = _typed(values, kinds[name])
                chunks[name].append(array)
                wrong += bad
            total += len(rows)
        if wrong:
            self._reading.problem(f"table {table}: {wrong} values of the wrong type left out")
        return chunks, total

    def _some_rows(self, table: str, source: Any, done: int) -> tuple[list[Any], bool]:
        """Up to a chunk of rows, and whether there may be more."""
        rows: list[Any] = []
        reading = self._reading
        reading.progress(table, 0.0)
        try:
            cursor = source[1].execute(source[0]) if isinstance(source, tuple) else source
            for row in cursor:
                if done + len(rows) == reading.max_rows:
                    reading.problem(f"table {table}: only its first {reading.max_rows:,} rows read")
                    return rows, False
                rows.append(row)
                if len(rows) == _CHUNK:
                    return rows, True
        except (sqlite3.Error, OverflowError) as error:
            reading.problem(f"table {table} is damaged after row {done + len(rows):,} ({error})")
        return rows, False


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _nulls(rows: int, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(rows, kind)])


def _typed(values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, int]:
    """An array of `kind`, and how many values of another type became null."""
    try:
        return pa.array(values, type=kind), 0
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        pass
    accepted: type | tuple[type, ...] = str if pa.types.is_string(kind) else int
    clean = [value if isinstance(value, accepted) else None for value in values]
    wrong = sum(value is not None for value in values) - sum(v is not None for v in clean)
    return pa.array(clean, type=kind), wrong
