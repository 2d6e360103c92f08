"""The interface of a profiler that watches a trial.

A trial is served by a worker process. Outside it, `command` puts the tool in front of the worker;
inside it, `recording` encloses the steps that are captured; afterwards `report` is there to import.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, Literal

from profiles.records import ProfilerName

GraphTrace = Literal["graph", "node"]


class Profiler(ABC):
    """One tool. `folder` is where it writes, and nobody else."""

    name: ClassVar[ProfilerName]
    needs_gpu: ClassVar[bool]
    steps: ClassVar[int]  # captured when nobody says how many
    reads_prompts: ClassVar[bool] = True  # False: capture begins once a step reads no prompt

    @abstractmethod
    def check(self) -> None:
        """Raise BadInput, with the remedy, where the tool is not on this host."""

    @abstractmethod
    def command(self, worker: list[str], folder: Path) -> list[str]:
        """Return the command that runs `worker` under the tool. Raises BadInput without it."""

    @abstractmethod
    def recording(self, folder: Path) -> AbstractContextManager[None]:
        """Record while the block runs, the engine's phases marked."""

    @abstractmethod
    def report(self, folder: Path) -> Path:
        """The file that the tool wrote."""
