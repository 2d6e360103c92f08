"""Run a trial under a profiler, import what it wrote and join it to the trial."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from profiles.files import make_folder
from profiles.nsight.reading import Progress, no_progress
from profiles.record_files import read_or_set_aside
from profiles.records import TrialConfig, TrialResult
from profiles.store import RunFolder
from profiles.trial_capture import CaptureWindow, TrialCapture, join_capture
from profiles.trial_folder import TrialFolder
from tuner.capture.base import Profiler
from tuner.errors import EngineFailure, TunerError

WINDOW_FILE = "window.json"
WORKER_ERROR = "error: "


def capture_folder(trial: TrialFolder) -> Path:
    """Where the profiler of a trial writes."""
    return trial.path / "capture"


def capture_trial(
    run: RunFolder,
    number: int,
    config: TrialConfig,
    profiler: Profiler,
    steps: int,
    progress: Progress = no_progress,
) -> tuple[TrialResult, TrialCapture | None]:
    """Run trial `number` in a worker under `profiler`; None where the trial itself failed.

    The workload is that of the run's record.

    Raises:
        BadInput: the tool is missing.
        TunerError: the worker or the tool broke; with the exit status of the worker.
        UnreadableProfile: the tool's report cannot be read.
    """
    trial = run.trial(number)
    folder = capture_folder(trial)
    worker = [sys.executable, "-m", "tuner.capture.worker", str(run.path.absolute()), str(number)]
    worker += [profiler.name, str(steps)]
    command = profiler.command(worker, folder.absolute())
    make_folder(folder)
    trial.write_config(config)
    code = _run(command, trial.log_path)
    result = trial.result()
    if result is None:
        raise _broken(profiler, trial, code)
    if result.error is not None:
        return result, None
    window = read_or_set_aside(folder / WINDOW_FILE, CaptureWindow)
    report = profiler.report(folder)
    if window is None or not report.is_file():
        raise EngineFailure(f"{profiler.name} wrote no report: {_last_words(trial)}")
    return result, join_capture(run, number, profiler.name, window, report, progress)


def _run(command: list[str], log_path: Path) -> int:
    with log_path.open("ab") as log:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False
        ).returncode


def _broken(profiler: Profiler, trial: TrialFolder, code: int) -> TunerError:
    error = TunerError(f"the trial under {profiler.name} broke: {_last_words(trial)}")
    error.exit_code = code if code in (2, 3, 4) else 1
    return error


def _last_words(trial: TrialFolder) -> str:
    """The worker's error, which a tool may have spoken after; else the last line."""
    lines = trial.log_path.read_text(errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith(WORKER_ERROR)]
    return (errors or lines or ["it left no message"])[-1].removeprefix(WORKER_ERROR)
