"""Read known tables of an SQLite file that nobody vouches for.

Opened read-only and immutable with `trusted_schema` off; views, virtual tables and generated
columns are passed over, so that no SQL of the file is ever run. Values are taken only where they
have the expected type: SQLite stores anything in any column.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from profiles.errors import UnreadableProfile
from profiles.nsight.reading import Reading

# NOTE sqlite3 raises the second when its own message quotes damaged bytes.
DAMAGE = (sqlite3.Error, UnicodeDecodeError)
DEADLINE_S = 600.0
_CHECKED_BYTES = 1 << 24  # larger files are not checked page by page, which takes a while
_BATCH = 500  # more does not stay in the processor cache while it is turned into columns
_ROWS_EACH_WORD = 20_000  # of progress
_MAX_VALUE_BYTES = 1 << 24
_EXPORT_AGAIN = "Export it again: nsys export --type sqlite REPORT.nsys-rep."


class SqliteSource:
    """The tables of one file; a context manager."""

    def __init__(self, reading: Reading, path: Path) -> None:
        self._reading = reading
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._connection = sqlite3.connect(uri, uri=True)
        try:
            self._harden()
            self._tables = self._list_tables()
            self._note_damage(path)
        except DAMAGE as error:
            self._connection.close()
            raise UnreadableProfile(
                reading.path, f"the SQLite file is damaged ({error})", _EXPORT_AGAIN
            ) from error

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

    def _note_damage(self, path: Path) -> None:
        pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
        size = self._connection.execute("PRAGMA page_size").fetchone()[0]
        present = path.stat().st_size
        if present < pages * size:
            self._reading.problem(f"the file is cut short: {present:,} of {pages * size:,} bytes")
        if present <= _CHECKED_BYTES:
            found = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                words = " ".join(str(found).split())[:200]
                self._reading.problem(f"the SQLite file is damaged: {words}")

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
        sql = f"SELECT {selected} FROM {_quoted(table)}"
        chunks: dict[str, list[pa.Array]] = {name: [] for name in present}
        rows = wrong = 0
        for batch in self._batches(table, sql):
            for name, values in zip(present, zip(*batch, strict=True), strict=True):
                array, bad = _typed(values, columns[name])
                chunks[name].append(array)
                wrong += bad
            rows += len(batch)
        if wrong:
            self._reading.problem(f"table {table}: {wrong} values of the wrong type left out")
        if not rows:
            return None
        return {
            name: pa.chunked_array(chunks[name], kind) if name in present else _nulls(rows, kind)
            for name, kind in columns.items()
        }

    def _present(self, table: str, wanted: Mapping[str, pa.DataType]) -> list[str]:
        try:
            info = self._connection.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
        except DAMAGE as error:
            self._reading.problem(f"table {table} cannot be read ({error})")
            return []
        there = {row[1] for row in info}
        return [column for column in wanted if column in there]

    def _batches(self, table: str, sql: str) -> Iterator[list[Any]]:
        """Rows in batches, up to the limit, or to the first damaged page."""
        reading, done = self._reading, 0
        expected = self._about_rows(table)
        try:
            cursor = self._connection.execute(f"{sql} LIMIT {reading.max_rows}")
            while batch := cursor.fetchmany(_BATCH):
                yield batch
                done += len(batch)
                if done % _ROWS_EACH_WORD == 0:
                    reading.progress(table, min(1.0, done / expected))
        except DAMAGE as error:
            rescued = list(self._rows_until_damage(f"{sql} LIMIT {_BATCH} OFFSET {done}"))
            done += len(rescued)
            reading.problem(f"table {table} is damaged after row {done:,} ({error})")
            if rescued:
                yield rescued
        if done == reading.max_rows and expected > done:
            reading.problem(f"table {table}: only its first {done:,} rows were read")

    def _about_rows(self, table: str) -> int:
        """Some upper bound of the rows, found without counting them; 1 where there is none."""
        with contextlib.suppress(*DAMAGE):
            sql = f"SELECT max(rowid) FROM {_quoted(table)}"
            return max(1, int(self._connection.execute(sql).fetchone()[0] or 1))
        return 1

    def _rows_until_damage(self, sql: str) -> Iterator[Any]:
        with contextlib.suppress(*DAMAGE):
            yield from self._connection.execute(sql)


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
    if pa.types.is_string(kind):
        clean: list[Any] = [value if isinstance(value, str) else None for value in values]
    elif pa.types.is_floating(kind):
        numbers = [isinstance(value, int | float) for value in values]
        clean = [float(v) if ok else None for v, ok in zip(values, numbers, strict=True)]
    else:
        clean = [value if isinstance(value, int) else None for value in values]
    wrong = sum(value is not None for value in values) - sum(v is not None for v in clean)
    return pa.array(clean, type=kind), wrong
