"""One trial in a process of its own: `python -m tuner.sweep.worker RUN_FOLDER NUMBER`.

A crash here, by CUDA or by the kernel's out-of-memory killer, costs this one trial.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from profiles.records import TrialProgress, TrialResult, TrialState
from profiles.status import now_utc
from profiles.store import RunFolder
from tuner.errors import BadInput
from tuner.sweep.spec import SweepSpec
from tuner.trial import config_hash, run_trial


def main(run_path: str, number: int) -> None:
    """Measure trial `number` of the run and write its result."""
    _die_with_parent()
    run = RunFolder(Path(run_path))
    spec = SweepSpec.model_validate(run.record().spec)
    folder = run.trial(number)
    config = folder.config()
    if config is None:
        raise SystemExit(f"trial {number} has no whole config.json")
    started_at = now_utc()

    def report(fraction: float, doing: str) -> None:
        folder.write_progress(TrialProgress(fraction=fraction, doing=doing))

    try:
        run_trial(folder, config, spec.workload, on_progress=report)
    except BadInput as error:
        folder.write_result(
            TrialResult(
                number=number,
                state=TrialState.FAILED,
                config=config,
                config_hash=config_hash(config, spec.workload, run.record().workload_hash),
                workload=spec.workload,
                started_at=started_at,
                finished_at=now_utc(),
                error=str(error),
            )
        )


def _die_with_parent() -> None:
    """End this process when its coordinator is gone: nobody would read the result."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
