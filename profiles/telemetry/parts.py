"""The files of a telemetry folder: parts, merged at the end (`merge.py`), and why values miss.

The sampler writes small parts whole, so that a reader of the folder never meets half a file.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

from profiles.files import read_json, write_json
from profiles.tables import write_table
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
        write_table(self._folder / f"part-{self._next:06d}.parquet", _table(rows))
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
    """Rows as a table.

    NOTE pa.array and pa.table import pandas when it is installed, half a second of CPU and 60 MB
    in a process that should cost nothing. pyarrow's JSON reader does not.
    """
    lines = "\n".join(json.dumps(row, allow_nan=False) for row in rows)
    return pyarrow.json.read_json(
        io.BytesIO(lines.encode()),
        read_options=pyarrow.json.ReadOptions(use_threads=False),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=SCHEMA, unexpected_field_behavior="error"
        ),
    )
