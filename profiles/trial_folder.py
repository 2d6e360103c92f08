"""`trials/<n>/`: the config, the result and the tables of one trial."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from profiles.files import make_folder
from profiles.record_files import read_or_set_aside, set_aside, write_record
from profiles.records import (
    STEP_PHASES,
    RequestRecord,
    StepRecord,
    TrialConfig,
    TrialProgress,
    TrialResult,
)
from profiles.tables import REQUEST_SCHEMA, STEP_SCHEMA, read_records, write_records

if TYPE_CHECKING:
    import pandas as pd

_STEP_TIMES = pa.schema(
    [STEP_SCHEMA.field(name) for name in ("start_s", *(f"{phase}_ms" for phase in STEP_PHASES))]
)


class TrialFolder:
    """One trial on disk. Writing makes the folder; every write may raise StorageError."""

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number

    @property
    def telemetry_dir(self) -> Path:
        """Where the sampler writes; the sampler makes it."""
        return self.path / "telemetry"

    @property
    def log_path(self) -> Path:
        """The worker's output. Its folder exists once the config is written."""
        return self.path / "worker.log"

    def write_config(self, config: TrialConfig) -> None:
        """Write what will run."""
        make_folder(self.path)
        write_record(self.path / "config.json", config)

    def config(self) -> TrialConfig | None:
        """What ran, or None when no whole config was written."""
        return read_or_set_aside(self.path / "config.json", TrialConfig)

    def write_result(self, result: TrialResult) -> None:
        """Write what was measured; with it the trial is done."""
        make_folder(self.path)
        write_record(self.path / "result.json", result)

    def result(self) -> TrialResult | None:
        """What was measured, or None; a torn file is renamed to `result.json.torn`."""
        return read_or_set_aside(self.path / "result.json", TrialResult)

    def write_progress(self, progress: TrialProgress) -> None:
        """Say how far the trial has come."""
        make_folder(self.path)
        write_record(self.path / "progress.json", progress)

    def progress(self) -> TrialProgress | None:
        """How far the trial has come, or None before it said so."""
        return read_or_set_aside(self.path / "progress.json", TrialProgress)

    def write_steps(self, steps: Sequence[StepRecord]) -> None:
        """Write `steps.parquet`."""
        make_folder(self.path)
        write_records(self.path / "steps.parquet", steps, STEP_SCHEMA)

    def write_requests(self, requests: Sequence[RequestRecord]) -> None:
        """Write `requests.parquet`."""
        make_folder(self.path)
        write_records(self.path / "requests.parquet", requests, REQUEST_SCHEMA)

    def steps(self) -> pd.DataFrame:
        """The steps, one row each; empty when there are none or the file is torn."""
        return self._table("steps.parquet", STEP_SCHEMA)

    def step_times(self) -> pd.DataFrame:
        """When each step began and what its phases took; else as `steps`, read faster."""
        return self._table("steps.parquet", _STEP_TIMES)

    def requests(self) -> pd.DataFrame:
        """The requests, one row each; empty when there are none or the file is torn."""
        return self._table("requests.parquet", REQUEST_SCHEMA)

    def _table(self, name: str, schema: pa.Schema) -> pd.DataFrame:
        path = self.path / name
        try:
            return read_records(path, schema)
        except (ValueError, OSError):
            set_aside(path)
            return read_records(path, schema)
