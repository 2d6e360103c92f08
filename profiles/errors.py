"""Every error that profiles raises on purpose.

    ProfilesError
    |-- StorageError        a file could not be written: names the path and the remedy
    |-- RunExists           the run id is taken
    |-- UnknownRun          no run has this id (also a KeyError): lists near names
    |-- DamagedRun          run.json is missing, torn or of another schema
    `-- UnreadableProfile   an imported file is no profile, or too damaged: names the remedy

Impossible measurements raise plain `ValueError`s that name the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path


class ProfilesError(Exception):
    """Base of all errors of this package."""


class StorageError(ProfilesError):
    """A file could not be written; `path`, `reason` and `remedy` say where, why, what to do."""

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{path}: {reason}. {remedy}")
        self.path = path
        self.reason = reason
        self.remedy = remedy


class RunExists(ProfilesError):
    """Another run already claimed this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} exists already: choose another id, or resume it")
        self.run_id = run_id


class UnknownRun(ProfilesError, KeyError):
    """No run has this id; `near` holds the names that look like it."""

    def __init__(self, run_id: str, existing: Sequence[str]) -> None:
        self.run_id = run_id
        self.near = get_close_matches(run_id, existing, n=3) or list(existing[:3])
        hint = f"did you mean {', '.join(self.near)}?" if self.near else "there are no runs yet"
        super().__init__(f"no run {run_id!r}: {hint}")

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would quote it


class DamagedRun(ProfilesError):
    """`run.json` cannot be read; `path` is the file and `reason` what is wrong with it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}")
        self.path = path
        self.reason = reason


class UnreadableProfile(ProfilesError):
    """An imported file gives nothing; `path`, `reason` and `remedy` say why and what to do."""

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{path.name}: {reason}. {remedy}")
        self.path = path
        self.reason = reason
        self.remedy = remedy
