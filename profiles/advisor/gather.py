"""Collect the evidence of a trial from its run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from profiles.advisor.evidence import Evidence
from profiles.store import RunFolder
from profiles.telemetry.parts import read, read_reasons

if TYPE_CHECKING:
    import pandas as pd

LOG_TAIL_BYTES = 200_000  # a failure is told at the end of a log


def gather(run: RunFolder, number: int, telemetry: pd.DataFrame | None = None) -> Evidence | None:
    """Return the evidence of trial `number`, or None while it has no result.

    `telemetry` spares reading it again; it needs only `samples.WATCHED` and the key columns.

    Raises:
        DamagedRun: `run.json` cannot be read.
    """
    results = {result.number: result for result in run.trials()}
    if number not in results:
        return None
    folder = run.trial(number)
    return Evidence(
        result=results.pop(number),
        siblings=list(results.values()),
        steps=folder.steps(),
        requests=folder.requests(),
        telemetry=read(folder.telemetry_dir) if telemetry is None else telemetry,
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
