"""Open the run store and make run records."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from profiles.errors import UnknownRun
from profiles.hardware import fingerprint, git_sha, versions
from profiles.records import RunRecord
from profiles.status import now_utc
from profiles.store import RunFolder, RunStore
from tuner.errors import BadInput

Kind = Literal["run", "sweep"]


def run_store() -> RunStore:
    """The store below $TUNER_RUNS_DIR, else `runs` in the working directory."""
    return RunStore(Path(os.environ.get("TUNER_RUNS_DIR", "runs")))


def open_run(run_id: str, kind: Kind | None = None) -> RunFolder:
    """Find a run by its id; `latest` is the newest, of `kind` if one is given.

    Raises:
        BadInput: there is none, or it is of another kind.
    """
    store = run_store()
    if run_id == "latest":
        newest = next((r for r in store.list() if kind in (None, r.record().kind)), None)
        if newest is None:
            raise BadInput("RUN", run_id, f"there is no {kind or 'run'} in {store.root}")
        return newest
    try:
        run = store.open(run_id)
    except UnknownRun as error:
        raise BadInput("RUN", run_id, str(error)) from error
    if kind not in (None, run.record().kind):
        raise BadInput("RUN", run_id, f"is a {run.record().kind}; this needs a {kind}")
    return run


def create_run(kind: Kind, spec: dict[str, Any], seed: int, workload_hash: str) -> RunFolder:
    """Claim a new run folder, named after the time. Raises StorageError."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")[:-3]
    record = RunRecord(
        run_id=f"{kind}-{stamp}",
        kind=kind,
        created_at=now_utc(),
        spec=spec,
        versions=versions(),
        git_sha=git_sha(Path(__file__).parents[1]),
        hardware=fingerprint(),
        seed=seed,
        workload_hash=workload_hash,
    )
    return run_store().create(record)
