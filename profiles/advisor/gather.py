"""Collect the evidence of a trial from its run's folder."""

from __future__ import annotations

from pathlib import Path

from profiles.advisor.evidence import Evidence
from profiles.served_telemetry import served_telemetry
from profiles.store import RunFolder
from profiles.telemetry.parts import read_reasons

LOG_TAIL_BYTES = 200_000  # a failure is told at the end of a log


def gather(run: RunFolder, number: int) -> Evidence | None:
    """Return the evidence of trial `number`, or None while it has no result.

    Raises:
        DamagedRun: `run.json` cannot be read.
    """
    results = {result.number: result for result in run.trials()}
    if number not in results:
        return None
    folder = run.trial(number)
    steps = folder.steps()
    return Evidence(
        result=results.pop(number),
        siblings=list(results.values()),
        steps=steps,
        requests=folder.requests(),
        served=served_telemetry(folder, steps),
        reasons=read_reasons(folder.telemetry_dir),
        hardware=run.record().hardware,
        log=_tail(folder.log_path),
    )


def _tail(path: Path) -> str | None:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")
    except OSError:
        return None
