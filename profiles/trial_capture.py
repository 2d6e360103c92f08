"""`trials/<n>/capture.json`: what a profiler saw of a trial, joined to its phases.

The normalised tables lie with the run's other imports, under `imports/<import_id>/`.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from profiles.activity_check import ActivityCheck, check_activity
from profiles.nsight import SCHEMAS, write_import
from profiles.nsight.phase_work import STEP
from profiles.nsight.phases import CapturedPhases, captured_phases
from profiles.nsight.reading import Progress, no_progress
from profiles.record_files import read_or_set_aside, write_record
from profiles.records import ProfilerName, Record
from profiles.store import RunFolder, TrialFolder
from profiles.telemetry.parts import read, read_reasons

FILE_NAME = "capture.json"


class CaptureWindow(Record):
    """The captured steps, on the clock of the trial's steps and telemetry."""

    steps: int
    start_s: float
    end_s: float


class TrialCapture(Record):
    """One capture of one trial; `report` is the profiler's own file, in the trial's folder."""

    profiler: ProfilerName
    window: CaptureWindow
    import_id: str
    report: str
    anatomy: CapturedPhases
    activity: list[ActivityCheck] = []  # empty without GPU metrics of Nsight Systems


def join_capture(
    run: RunFolder,
    number: int,
    profiler: ProfilerName,
    window: CaptureWindow,
    report: Path,
    progress: Progress = no_progress,
) -> TrialCapture:
    """Import `report` into the run, join it to trial `number` and write that down.

    Raises:
        UnreadableProfile: nothing can be read from the report.
        StorageError: the run's folder cannot be written.
    """
    trial = run.trial(number)
    folder = write_import(run.path / "imports", report, progress)
    tables = {name: pq.read_table(folder / f"{name}.parquet") for name in _tables_in(folder)}
    capture = TrialCapture(
        profiler=profiler,
        window=window,
        import_id=folder.name,
        report=str(report.relative_to(trial.path)),
        anatomy=captured_phases(tables),
        activity=_activity(tables, trial, window),
    )
    write_record(trial.path / FILE_NAME, capture)
    return capture


def read_trial_capture(trial: TrialFolder) -> TrialCapture | None:
    """The capture of a trial; None when it was not profiled, or the record is torn."""
    return read_or_set_aside(trial.path / FILE_NAME, TrialCapture)


def _activity(
    tables: dict[str, pa.Table], trial: TrialFolder, window: CaptureWindow
) -> list[ActivityCheck]:
    """Nsight's GPU metrics against the trial's own; the first step ties their clocks together."""
    if "gpu_metrics" not in tables or "ranges" not in tables:
        return []
    metrics, ranges = tables["gpu_metrics"], tables["ranges"]
    starts = ranges.filter(pc.equal(ranges["name"].cast(pa.string()), STEP))["start_ns"]
    worked = {
        gpu
        for name in ("kernels", "graph_spans")
        if name in tables
        for gpu in tables[name]["gpu"].unique().to_pylist()
    }
    if not len(starts) or len(worked) != 1:
        return []
    own = metrics.filter(pc.equal(metrics["gpu"], worked.pop()))
    origin_s = window.start_s - pc.min(starts).as_py() / 1e9
    samples, reasons = read(trial.telemetry_dir), read_reasons(trial.telemetry_dir)
    return check_activity(own, samples, reasons, origin_s, window.start_s, window.end_s)


def _tables_in(folder: Path) -> list[str]:
    return [name for name in SCHEMAS if (folder / f"{name}.parquet").exists()]
