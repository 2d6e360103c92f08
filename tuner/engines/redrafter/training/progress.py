"""The rows of a training: one at every report, in `progress.parquet` of the output folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from profiles.tables import write_records
from tuner.errors import BadInput

PROGRESS_FILE = "progress.parquet"
SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("stage", pa.int64()),
        ("draft_len", pa.int64()),
        ("fraction", pa.float64()),
        ("seconds", pa.float64()),
        ("positions", pa.int64()),
        ("learning_rate", pa.float64()),
        ("loss", pa.float64()),
        ("loss_by_draft", pa.list_(pa.float64())),
        ("top1_by_draft", pa.list_(pa.float64())),
        ("acceptance_length", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True)
class TrainRow:
    """Where training stands. Losses and top-1 are means over the steps since the last row.

    `loss_by_draft` and `top1_by_draft` (share of positions where the base model's choice is the
    drafter's likeliest token) have one entry for each drafted position of the stage; a causal LM
    has the next token alone. In stage 3 `loss` holds the beam loss as well.
    """

    step: int
    stage: int
    draft_len: int
    fraction: float
    seconds: float
    positions: int
    learning_rate: float
    loss: float
    loss_by_draft: list[float]
    top1_by_draft: list[float]
    acceptance_length: float | None  # held-out prompts; None: not measured at this row


def write_progress(folder: Path, rows: list[TrainRow]) -> None:
    """Write the rows whole. Raises StorageError."""
    write_records(folder / PROGRESS_FILE, rows, SCHEMA)


def read_progress(folder: Path) -> list[TrainRow]:
    """Read the rows of a training, none where there is no file.

    Raises:
        BadInput: not a progress file.
    """
    path = folder / PROGRESS_FILE
    if not path.exists():
        return []
    try:
        return [TrainRow(**row) for row in pq.read_table(path, schema=SCHEMA).to_pylist()]
    except (ValueError, TypeError, OSError) as error:
        raise BadInput("out", str(path), f"is no progress of a training ({error})") from error
