"""Where a run stands, from its files alone: every tab and every restart sees the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from profiles.records import TrialResult
from profiles.status import UNFINISHED, RunStatus
from profiles.store import RunFolder

STARTS_WITHIN_S = 30.0

WORDS = {
    "starting": "Starting",
    "running": "Running",
    "stopping": "Stopping after this trial",
    "done": "Done",
    "stopped": "Stopped",
    "failed": "Failed",
    "interrupted": "Interrupted",
    "never started": "Never started",
}
RESUMABLE = frozenset({"stopped", "failed", "interrupted", "never started"})


@dataclass(frozen=True)
class LiveState:
    """`left_s` is a guess from the trials so far."""

    state: str
    is_sweep: bool
    message: str
    done: int
    planned: int | None
    elapsed_s: float
    left_s: float | None

    @property
    def words(self) -> str:
        """The state for people."""
        return WORDS[self.state]

    @property
    def unfinished(self) -> bool:
        """Whether anything may still change by itself."""
        return self.state in UNFINISHED

    @property
    def can_stop(self) -> bool:
        """Whether a stop would be heard."""
        return self.is_sweep and self.state in ("starting", "running")

    @property
    def can_resume(self) -> bool:
        """Whether the run can go on where it ended."""
        return self.is_sweep and self.state in RESUMABLE


def live_state(
    run: RunFolder,
    results: Sequence[TrialResult],
    now: datetime,
) -> LiveState:
    """Read the state of `run`, whose finished trials are `results`."""
    status = run.status()
    record = run.record()
    begun = datetime.fromisoformat(record.created_at)
    state: str = run.observed_state()
    if state == "starting" and _no_owner_came(status, begun, now):
        state = "never started"
    if state == "running" and run.stop_requested():
        state = "stopping"
    unfinished = state in UNFINISHED
    ended = datetime.fromisoformat(status.updated_at) if status else begun
    planned = status.trials_planned if status else None
    return LiveState(
        state=state,
        is_sweep=record.kind == "sweep",
        message=_message(run, status),
        done=len(results),
        planned=planned,
        elapsed_s=max(0.0, ((now if unfinished else ended) - begun).total_seconds()),
        left_s=_left(results, planned) if unfinished else None,
    )


def utc_now() -> datetime:
    """The time to compare the store's times with."""
    return datetime.now(UTC)


def _no_owner_came(status: RunStatus | None, begun: datetime, now: datetime) -> bool:
    since = datetime.fromisoformat(status.updated_at) if status else begun
    unowned = status is None or status.pid is None
    return unowned and (now - since).total_seconds() > STARTS_WITHIN_S


def _message(run: RunFolder, status: RunStatus | None) -> str:
    """What the owner said, and how far the trial in progress has come."""
    if status is None:
        return ""
    progress = run.trial(status.trial).progress() if status.trial is not None else None
    return f"{status.message} · {progress.doing}" if progress else status.message


def _left(results: Sequence[TrialResult], planned: int | None) -> float | None:
    """Mean time of a trial, for each one still to come."""
    took = [
        (datetime.fromisoformat(r.finished_at) - datetime.fromisoformat(r.started_at))
        for r in results
        if r.finished_at
    ]
    if not took or planned is None:
        return None
    mean = sum(duration.total_seconds() for duration in took) / len(took)
    return mean * max(0, planned - len(results))
