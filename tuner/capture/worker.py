"""The process that a profiler watches: `python -m tuner.capture.worker RUN NUMBER TOOL STEPS`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from profiles.record_files import write_record
from profiles.records import ProfilerName, WorkloadSpec
from profiles.store import RunFolder
from tuner.capture import profiler_class
from tuner.capture.capture import WINDOW_FILE, WORKER_ERROR, capture_folder
from tuner.capture.window import Window
from tuner.errors import TunerError
from tuner.trial import run_trial


def main(run_path: str, number: int, tool: ProfilerName, steps: int) -> None:
    """Serve the trial and record `steps` steps of it."""
    run = RunFolder(Path(run_path))
    trial = run.trial(number)
    config = trial.config()
    if config is None:
        raise SystemExit(f"trial {number} has no whole config.json")
    spec = WorkloadSpec.model_validate(run.record().spec["workload"])
    folder = capture_folder(trial)
    profiler = profiler_class(tool)()
    window = Window(partial(profiler.recording, folder), steps, profiler.reads_prompts)
    run_trial(trial, config, spec, measuring=window.measure, profiler=tool)
    if window.captured is not None:
        write_record(folder / WINDOW_FILE, window.captured)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))  # type: ignore[arg-type]
    except TunerError as error:
        print(f"{WORKER_ERROR}{error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
