"""Read counters one by one, so that each can be missing alone and say why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Value = int | float | str | None
Reading = int | float | Exception
"""One of the counters that a call gives together; an exception says why it has no value."""


class Unavailable(Exception):
    """A counter gave no value. `for_good`: it never will on this host, so stop asking."""

    def __init__(self, reason: str, for_good: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.for_good = for_good


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a column has nulls, and since when on the monotonic clock."""

    reason: str
    since_t_s: float


class Source(Protocol):
    """Something with counters, sampled once a tick: the host or one GPU."""

    name: str

    def sample(self, t_s: float, full: bool = False) -> Mapping[str, Value]:
        """Values by column name, None where there is none. Never raises for a counter.

        `full` reads also what is too costly for every tick and would not be due yet.
        """

    def missing(self) -> Mapping[str, Missing]:
        """Columns that had no value at least once, with the latest reason."""

    def close(self) -> None:
        """Release what the source holds."""


class MissingLog:
    """Remembers, for each column, why and since when it is missing."""

    def __init__(self) -> None:
        self._missing: dict[str, Missing] = {}
        self._for_good: set[str] = set()

    def note(self, column: str, error: Unavailable, t_s: float) -> None:
        """Keep the reason. The same reason again keeps its first moment."""
        known = self._missing.get(column)
        if known is None or known.reason != error.reason:
            self._missing[column] = Missing(error.reason, t_s)
        if error.for_good:
            self._for_good.add(column)

    def is_for_good(self, column: str) -> bool:
        """Whether asking again is pointless."""
        return column in self._for_good

    def missing(self) -> dict[str, Missing]:
        """A copy of what is missing."""
        return dict(self._missing)
