"""`status.json`: where a run stands, and which process owns it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field

from profiles import processes
from profiles.records import Record

RunState = Literal["starting", "running", "stopping", "done", "stopped", "failed", "interrupted"]
UNFINISHED: frozenset[RunState] = frozenset({"starting", "running", "stopping"})


def now_utc() -> str:
    """The time in UTC as ISO 8601 with microseconds; such strings sort by time."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class RunStatus(Record):
    """State of a run. The owner is None until a process took it up."""

    state: RunState
    pid: int | None = None
    boot_id: str | None = None
    process_start: str | None = None  # /proc/<pid>/stat start time of the owner, clock ticks
    message: str = ""
    trial: int | None = None  # the one being measured
    trials_done: Annotated[int, Field(ge=0)] = 0
    trials_planned: Annotated[int, Field(ge=0)] | None = None
    updated_at: str

    @classmethod
    def of_this_process(
        cls,
        state: RunState,
        message: str = "",
        trials_done: int = 0,
        trials_planned: int | None = None,
        trial: int | None = None,
    ) -> RunStatus:
        """A status owned by the calling process, stamped now."""
        return cls(
            state=state,
            pid=os.getpid(),
            boot_id=processes.boot_id(),
            process_start=processes.start_time(os.getpid()),
            message=message,
            trial=trial,
            trials_done=trials_done,
            trials_planned=trials_planned,
            updated_at=now_utc(),
        )

    def owner_is_alive(self) -> bool:
        """Whether the owning process runs: not a zombie, not a later process of the same pid."""
        if self.pid is None or self.boot_id is None or self.process_start is None:
            return False
        return processes.is_alive(self.pid, self.process_start, self.boot_id)
