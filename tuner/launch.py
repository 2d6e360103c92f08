"""Start, resume and stop sweeps as processes of their own.

One sweep at a time measures on a host, because two would distort each other. The coordinator holds
a file lock for its whole life; the kernel releases it when the process dies, however it dies.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profiles.status import RunStatus, now_utc
from profiles.store import RunFolder
from tuner.errors import BadInput
from tuner.models.drafters import check_drafter
from tuner.runs import create_run, open_run, run_store
from tuner.sweep.spec import SweepSpec
from tuner.workloads import load_workload


def create_sweep(spec: SweepSpec) -> RunFolder:
    """Check the spec's drafters and workload, and claim a run folder. Raises BadInput."""
    if spec.engine != "fake":  # which loads none
        for drafter in spec.knobs["drafter"]:
            check_drafter(drafter, spec.model)
    workload = load_workload(spec.workload.workload)
    return create_run("sweep", spec.model_dump(mode="json"), spec.seed, workload.content_hash)


def launch_sweep(spec: SweepSpec) -> str:
    """Start a sweep that outlives this process and return its run id.

    Raises:
        BadInput: the workload is wrong, or another sweep is active on this host.
    """
    _refuse_when_active()
    run = create_sweep(spec)
    _announce(run, "starting")
    _detach(run)
    return run.run_id


def resume_sweep(run_id: str) -> None:
    """Go on with a stopped sweep, detached. Raises BadInput."""
    run = open_run(run_id, "sweep")
    _refuse_when_active()
    run.clear_stop()
    _announce(run, "resuming")
    _detach(run)


def stop_sweep(run_id: str) -> None:
    """Ask a sweep to stop after the trial in progress. Raises BadInput."""
    open_run(run_id, "sweep").request_stop()


def active_run() -> RunFolder | None:
    """Return the sweep that is being measured on this host, if there is one."""
    return next((run for run in run_store().list() if run.is_alive()), None)


@contextmanager
def host_lock(run: RunFolder) -> Iterator[None]:
    """Hold this host for one sweep. Raises BadInput when another holds it."""
    path = run.path.parent / ".active"
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _already_active() from error
        yield


def _refuse_when_active() -> None:
    if active_run() is not None:
        raise _already_active()


def _already_active() -> BadInput:
    run = active_run()
    return BadInput(
        "RUN", run.run_id if run else "?", "is being measured on this host; stop it or wait"
    )


def _announce(run: RunFolder, message: str) -> None:
    """Tell every tab at once; the coordinator speaks some seconds later."""
    done = len(run.trials())
    run.write_status(
        RunStatus(state="starting", message=message, trials_done=done, updated_at=now_utc())
    )


def _detach(run: RunFolder) -> None:
    """Start `tuner resume` in a session of its own, its output in the run folder."""
    root = Path(__file__).parents[1]
    with (run.path / "coordinator.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "tuner", "resume", run.run_id],
            env=os.environ | {"TUNER_RUNS_DIR": str(run.path.parent.resolve())},
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
