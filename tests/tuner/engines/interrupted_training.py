"""Trainings that end before their time, and what two of them have in common."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.engines.redrafter.training.progress import TrainRow, read_progress

ROOT = Path(__file__).parents[3]
_KILLED = """
import os, pickle, signal, sys, torch
torch.set_num_threads(1)
train, spec, step = pickle.load(sys.stdin.buffer)
def die(row):
    if row.step == step:
        os.kill(os.getpid(), signal.SIGKILL)
train(spec, die)
"""


class Stopped(Exception):
    """Raised to stop a training."""


def stop_at(step: int) -> Callable[[TrainRow], None]:
    """Return what stops a training when it reports `step`."""

    def stop(row: TrainRow) -> None:
        if row.step == step:
            raise Stopped

    return stop


def killed_at(step: int, train: Callable[..., Any], spec: Any) -> int:
    """Train in a process that gets SIGKILL as it reports `step`; return how that ended."""
    job = pickle.dumps((train, spec, step))
    return subprocess.run([sys.executable, "-c", _KILLED], cwd=ROOT, input=job).returncode


def curve(folder: Path) -> list[dict[str, Any]]:
    """Everything that was reported but the time it took."""
    rows = [asdict(row) for row in read_progress(folder)]
    for row in rows:
        del row["seconds"]
    return rows
