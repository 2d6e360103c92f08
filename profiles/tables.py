"""Step and request records as Parquet, one column a field, list columns as they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from profiles.files import write_bytes

if TYPE_CHECKING:
    import pandas as pd

STEP_SCHEMA = pa.schema(
    [
        ("index", pa.int64()),
        ("start_s", pa.float64()),
        ("draft_ms", pa.float64()),
        ("verify_ms", pa.float64()),
        ("accept_ms", pa.float64()),
        ("host_ms", pa.float64()),
        ("context_requests", pa.int64()),
        ("context_tokens", pa.int64()),
        ("request_ids", pa.list_(pa.string())),
        ("tree_nodes", pa.list_(pa.int64())),
        ("accepted", pa.list_(pa.int64())),
        ("committed", pa.list_(pa.int64())),
        ("kv_used_bytes", pa.int64()),
        ("prefill_ms", pa.float64()),
        ("tree_ms", pa.float64()),
        ("draft_len", pa.int64()),
    ]
)
REQUEST_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("category", pa.string()),
        ("prompt_tokens", pa.int64()),
        ("output_token_ids", pa.list_(pa.int64())),
        ("finish_reason", pa.string()),
        ("arrival_s", pa.float64()),
        ("emission_s", pa.list_(pa.float64())),
        ("emission_tokens", pa.list_(pa.int64())),
    ]
)


def write_table(path: Path, table: pa.Table, rows_a_group: int | None = None) -> None:
    """Write a Parquet file whole. Raises StorageError.

    A reader of some of the rows reads only the groups that may hold them.
    """
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd", row_group_size=rows_a_group)
    write_bytes(path, buffer.getvalue().to_pybytes())


def write_records(path: Path, records: Sequence[Any], schema: pa.Schema) -> None:
    """Write dataclass records, one row each, with the columns of `schema`. Raises StorageError."""
    columns = {name: [getattr(record, name) for record in records] for name in schema.names}
    write_table(path, pa.table(columns, schema=schema))


def read_records(path: Path, schema: pa.Schema) -> pd.DataFrame:
    """Read the columns of `schema`; list columns hold numpy arrays.

    A missing file gives an empty frame. A column that is younger than the file is null in it.

    Raises:
        ValueError: the file is not whole Parquet (`pyarrow.ArrowInvalid` is a ValueError).
    """
    if not path.exists():
        return schema.empty_table().to_pandas()
    with pq.ParquetFile(path) as file:
        table = file.read([name for name in schema.names if name in file.schema_arrow.names])
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table.to_pandas()
