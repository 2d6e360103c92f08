"""The files of a telemetry folder: parts, merged at the end (`merge.py`), and why values miss.

The sampler writes small parts whole, so that a reader of the folder never meets half a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from profiles.files import read_json, write_bytes, write_json
from profiles.telemetry.columns import COLUMNS
from profiles.telemetry.counters import Missing, Value

if TYPE_CHECKING:
    import pandas as pd

_KINDS = {"int": pa.int64(), "float": pa.float64(), "text": pa.string()}
SCHEMA = pa.schema([(column.name, _KINDS[column.kind]) for column in COLUMNS])


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why columns have nulls: `columns[source][column]`; `notices` hold for the whole folder."""

    notices: list[str] = field(default_factory=list)
    columns: dict[str, dict[str, Missing]] = field(default_factory=dict)


class PartWriter:
    """Appends numbered parts to a folder, after those an earlier sampler left there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._next = max(map(part_number, part_paths(folder)), default=-1) + 1

    def write(self, rows: Sequence[Mapping[str, Value]]) -> None:
        """Write one part. Raises StorageError."""
        buffer = pa.BufferOutputStream()
        # NOTE as little work as can be, while something is measured; merging packs it well.
        pq.write_table(
            _table(rows), buffer, compression="zstd", use_dictionary=False, write_statistics=False
        )
        part = self._folder / f"part-{self._next:06d}.parquet"
        write_bytes(part, buffer.getvalue().to_pybytes())
        self._next += 1


def read(folder: Path) -> pd.DataFrame:
    """Every sample by `t_s`, with the columns of `columns.py`; empty without samples.

    A part that is not whole Parquet is left out, which shows as a gap.
    """
    return whole_parts(folder).sort_by("t_s").to_pandas()


def part_paths(folder: Path) -> list[Path]:
    """The files that together hold every sample once, in the order in which they were written."""
    digits = "[0-9]" * 6
    merged = sorted(folder.glob(f"merged-{digits}.parquet"))[-1:]
    last = part_number(merged[0]) if merged else -1
    parts = sorted(folder.glob(f"part-{digits}.parquet"))
    return [*merged, *(path for path in parts if part_number(path) > last)]


def write_reasons(folder: Path, reasons: Reasons) -> None:
    """Write `reasons.json`. Raises StorageError."""
    write_json(folder / "reasons.json", asdict(reasons))


def read_reasons(folder: Path) -> Reasons:
    """Read `reasons.json`; empty when there is none or it is torn."""
    try:
        raw = read_json(folder / "reasons.json")
        columns = {
            source: {column: Missing(**missing) for column, missing in by_column.items()}
            for source, by_column in raw["columns"].items()
        }
        return Reasons(notices=list(raw["notices"]), columns=columns)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Reasons()


def whole_parts(folder: Path, read_part: Callable[[Path], pa.Table] = pq.read_table) -> pa.Table:
    """Every part that is whole Parquet, with null in the columns that are not read."""
    tables = [SCHEMA.empty_table()]
    for path in part_paths(folder):
        try:
            tables.append(read_part(path))
        except (pa.ArrowInvalid, OSError):
            continue
    return pa.concat_tables(tables, promote_options="default")


def part_number(path: Path) -> int:
    """The number in a part's name."""
    return int(path.stem.rsplit("-")[-1])


def _table(rows: Sequence[Mapping[str, Value]]) -> pa.Table:
    """Rows as a table of the columns that have any value; readers find null in the others.

    NOTE pa.array and pa.table import pandas when it is installed, half a second of CPU and 60 MB
    in a process that should cost nothing. Arrays made of buffers do not.
    """
    measured = {name for row in rows for name, value in row.items() if value is not None}
    schema = pa.schema([field for field in SCHEMA if field.name in measured])
    columns = [_array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _array(values: Sequence[Value], kind: pa.DataType) -> pa.Array:
    """Values, of which None are null, as an Arrow array."""
    known = np.packbits([value is not None for value in values], bitorder="little")
    if kind == pa.string():
        text = [str(value or "").encode() for value in values]
        ends = np.cumsum([0, *map(len, text)], dtype=np.int32)
        data = [ends, b"".join(text)]
    else:
        data = [np.array([value or 0 for value in values], kind.to_pandas_dtype())]
    return pa.Array.from_buffers(kind, len(values), [pa.py_buffer(each) for each in (known, *data)])
