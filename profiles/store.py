"""The run store: one folder a run, one folder a trial, every file written whole.

    <root>/<run_id>/run.json status.json stop_requested study.db exports/
                    trials/<n>/config.json result.json steps.parquet requests.parquet
                               telemetry/ worker.log

A run is claimed by making its folder, which succeeds for exactly one process.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationError

from profiles.errors import DamagedRun, RunExists, UnknownRun
from profiles.files import make_folder, storage_error, write_text
from profiles.record_files import read_or_set_aside, write_record
from profiles.records import RunRecord, TrialResult
from profiles.status import UNFINISHED, RunState, RunStatus, now_utc
from profiles.trial_folder import TrialFolder

__all__ = ["RunFolder", "RunStore", "TrialFolder"]

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class RunStore:
    """All runs below one folder, which is made by the first run."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, record: RunRecord) -> RunFolder:
        """Claim `record.run_id` and write `run.json`.

        Raises:
            ValueError: the id is no plain folder name (letters, digits, `.`, `_`, `-`), or the
                spec holds a NaN.
            RunExists: the id is taken.
            StorageError: the folder cannot be written; nothing is left behind.
        """
        if not _RUN_ID.fullmatch(record.run_id):
            raise ValueError(
                f"run_id = {record.run_id!r}: use 1 to 128 letters, digits, '.', '_' or '-', "
                "and begin with a letter or digit"
            )
        make_folder(self.root)
        path = self.root / record.run_id
        try:
            path.mkdir()
        except FileExistsError:
            raise RunExists(record.run_id) from None
        except OSError as error:
            raise storage_error(path, error) from error
        try:
            write_record(path / "run.json", record)
        except BaseException:
            path.rmdir()
            raise
        return RunFolder(path)

    def list(self) -> list[RunFolder]:
        """Every run whose `run.json` can be read, newest `created_at` first."""
        dated = []
        for path in _run_folders(self.root):
            run = RunFolder(path)
            try:
                dated.append((run.record().created_at, run.run_id, run))
            except DamagedRun:
                continue
        return [run for _, _, run in sorted(dated, key=lambda row: row[:2], reverse=True)]

    def open(self, run_id: str) -> RunFolder:
        """Find a run by its id, which is looked up among the names there are, never joined.

        Raises:
            UnknownRun: there is none; the message lists near names.
        """
        folders = {path.name: path for path in _run_folders(self.root)}
        if run_id not in folders:
            raise UnknownRun(run_id, sorted(folders, reverse=True))
        return RunFolder(folders[run_id])


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def run_id(self) -> str:
        """The run's id, which is its folder's name."""
        return self.path.name

    @property
    def study_path(self) -> Path:
        """Optuna's SQLite file; one coordinator writes it."""
        return self.path / "study.db"

    @property
    def exports_dir(self) -> Path:
        """Where exported configs go; made by whoever exports."""
        return self.path / "exports"

    def record(self) -> RunRecord:
        """What was asked for. Raises DamagedRun."""
        path = self.path / "run.json"
        try:
            return RunRecord.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise DamagedRun(path, str(error)) from error

    def trial(self, number: int) -> TrialFolder:
        """The folder of trial `number`; its first write makes it."""
        if number < 0:
            raise ValueError(f"trial number = {number} must not be negative")
        return TrialFolder(self.path / "trials" / str(number), number)

    def trials(self) -> list[TrialResult]:
        """Every trial with a whole result, by number. A torn result is set aside first."""
        results = (self.trial(number).result() for number in self.trial_numbers())
        return [result for result in results if result is not None]

    def trial_numbers(self) -> list[int]:
        """Numbers of the trials that have a folder, with or without a result."""
        folder = self.path / "trials"
        if not folder.is_dir():
            return []
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())

    def status(self) -> RunStatus | None:
        """The last status written, or None before the first."""
        return read_or_set_aside(self.path / "status.json", RunStatus)

    def write_status(self, status: RunStatus) -> None:
        """Replace the status. Raises StorageError."""
        write_record(self.path / "status.json", status)

    def is_alive(self) -> bool:
        """Whether the owner process named in the status really runs on this host."""
        status = self.status()
        return status is not None and status.owner_is_alive()

    def observed_state(self) -> RunState:
        """The state on disk, except that an unfinished run whose owner died is `interrupted`."""
        status = self.status()
        if status is None:
            return "starting"
        died = status.pid is not None and not status.owner_is_alive()
        return "interrupted" if died and status.state in UNFINISHED else status.state

    def request_stop(self) -> None:
        """Ask the owner to stop after what it is doing. Raises StorageError."""
        write_text(self._stop_path, now_utc() + "\n")

    def stop_requested(self) -> bool:
        """Whether someone asked the run to stop."""
        return self._stop_path.exists()

    def clear_stop(self) -> None:
        """Forget an earlier request to stop, when the run is resumed."""
        self._stop_path.unlink(missing_ok=True)

    @property
    def _stop_path(self) -> Path:
        return self.path / "stop_requested"


def _run_folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return [path for path in root.iterdir() if (path / "run.json").is_file()]
