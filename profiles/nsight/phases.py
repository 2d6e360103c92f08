"""Where a captured trial's time goes: by phase, by kernel, by step, and the gaps between.

Two clocks are kept apart. `host_ns` is how long the engine's thread was in a phase, waiting
included; `gpu_busy_ns` is how long the GPU ran what the phase launched, which may be later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from profiles.nsight.phase_work import (
    OUTSIDE,
    STEP,
    gpu_work,
    launch_calls,
    phase_ranges,
    profiled_launches,
)
from profiles.nsight.times import union_ns
from profiles.records import STEP_PHASES, Record

if TYPE_CHECKING:
    import pandas as pd

Graphs = Literal["none", "nodes", "hidden"]
_GRAPH_NOTES: dict[Graphs, str] = {
    "none": "no CUDA graph was launched in the capture",
    "nodes": "kernels inside CUDA graphs are listed one by one",
    "hidden": "CUDA graphs were traced as a whole: which kernels ran inside them is hidden, only "
    "their time is known; capture with --graph-trace node to see them",
}

_UNNAMED = "(unnamed)"
_TIMES = ["start_ns", "end_ns"]


class CapturedPhase(Record):
    """One phase over all captured steps; `outside` is what no phase launched."""

    phase: str
    instances: int | None = None
    host_ns: int | None = None
    launches: int | None = None  # API calls that launched kernels or graphs
    kernels: int | None = None
    kernel_ns: int | None = None  # plain sum: overlap counts twice
    graphs: int | None = None  # traced as a whole
    copies: int | None = None
    gpu_busy_ns: int | None = None  # union of kernels and whole graphs
    gap_before_ns: int | None = None  # the GPU was idle until this phase's work began


class CapturedKernel(Record):
    """One kernel within one phase."""

    phase: str
    kernel: str
    count: int
    in_graphs: int | None  # null where the tool does not tell
    total_ns: int | None


class StepMedians(Record):
    """Medians over the captured steps."""

    wall_ns: float
    launches: float | None
    kernels: float | None  # null where graphs hide them
    gpu_busy_ns: float | None


class GpuGaps(Record):
    """From the first step's begin to the last step's end on the one GPU that worked."""

    window_ns: int
    busy_ns: int
    idle_ns: int
    longest_gap_ns: int


class CapturedPhases(Record):
    """The whole account. What is null has its reason under its name in `missing`."""

    phases: list[CapturedPhase]
    kernels: list[CapturedKernel]  # most time first
    steps: int | None = None
    step: StepMedians | None = None
    gaps: GpuGaps | None = None
    graphs: Graphs
    graphs_note: str
    missing: dict[str, str] = {}


def captured_phases(tables: dict[str, pa.Table]) -> CapturedPhases:
    """Join an import's tables, as `read_capture` or `read_table` gives them, to its phases."""
    if "launch_metrics" in tables:
        return _of_launches(tables)
    ranges = phase_ranges(tables)
    calls = launch_calls(tables, ranges)
    work = gpu_work(tables, calls)
    steps = ranges[ranges["name"] == STEP].reset_index(drop=True)
    gaps, waits = _gaps(work, steps)
    graphs = _graphs(work)
    missing = {} if len(ranges) else {"phases": "the capture marks no phases of the engine"}
    if not len(work):
        missing["kernels"] = "no GPU work was recorded"
    elif not len(calls):
        missing["launches"] = "no API calls were recorded: GPU work cannot be joined to phases"
    if gaps is None:
        missing["gaps"] = "gaps need steps that are marked and the work of one GPU"
    if not len(steps):
        missing["steps"] = "the capture marks no steps"
    return CapturedPhases(
        phases=_phase_times(ranges, calls, work, waits),
        kernels=_kernel_times(work),
        steps=len(steps) or None,
        step=_medians(steps, calls, work, graphs) if len(steps) else None,
        gaps=gaps,
        graphs=graphs,
        graphs_note=_GRAPH_NOTES[graphs],
        missing=missing,
    )


def _of_launches(tables: dict[str, pa.Table]) -> CapturedPhases:
    """Nsight Compute: kernels run one by one, so there is no timeline."""
    work = profiled_launches(tables)
    no_timeline = "Nsight Compute runs kernels one by one: there is no timeline"
    missing = dict.fromkeys(("steps", "gaps", "launches"), no_timeline)
    if (work["phase"] == OUTSIDE).all():
        missing["phases"] = "the report has no NVTX column: capture with ncu --nvtx"
    return CapturedPhases(
        phases=[
            CapturedPhase(phase=phase, kernels=len(rows), kernel_ns=_total(rows))
            for phase, rows in _by_phase(work)
        ],
        kernels=_kernel_times(work),
        graphs="nodes",
        graphs_note="Nsight Compute takes the kernels of CUDA graphs one by one, like any other",
        missing=missing,
    )


def _phase_times(
    ranges: pd.DataFrame, calls: pd.DataFrame, work: pd.DataFrame, waits: dict[str, int]
) -> list[CapturedPhase]:
    launches = calls[calls["launches"]]["phase"].value_counts()
    busy = _busy_by("phase", work)
    times = []
    for phase in (*STEP_PHASES, OUTSIDE):
        spans, rows = ranges[ranges["name"] == phase], work[work["phase"] == phase]
        if not len(spans) and not len(rows):
            continue
        times.append(
            CapturedPhase(
                phase=phase,
                instances=len(spans) or None,
                host_ns=int((spans["end_ns"] - spans["start_ns"]).sum()) if len(spans) else None,
                launches=int(launches.get(phase, 0)) if len(calls) else None,
                gpu_busy_ns=busy.get(phase, 0) if len(work) else None,
                gap_before_ns=waits.get(phase, 0) if waits else None,
                **(_gpu_numbers(rows) if len(work) else {}),
            )
        )
    return times


def _gpu_numbers(rows: pd.DataFrame) -> dict[str, int | None]:
    kernels = rows[rows["kind"] == "kernel"]
    return {
        "kernels": len(kernels),
        "kernel_ns": _total(kernels),
        "graphs": int((rows["kind"] == "graph").sum()),
        "copies": int((rows["kind"] == "copy").sum()),
    }


def _kernel_times(work: pd.DataFrame) -> list[CapturedKernel]:
    kernels = work[work["kind"] == "kernel"].fillna({"name": _UNNAMED})
    rows = [
        CapturedKernel(
            phase=phase,
            kernel=name,
            count=len(group),
            in_graphs=int(group["from_graph"].sum()) if "from_graph" in group else None,
            total_ns=_total(group),
        )
        for (phase, name), group in kernels.groupby(["phase", "name"])
    ]
    return sorted(rows, key=lambda row: -(row.total_ns or 0))


def _medians(
    steps: pd.DataFrame, calls: pd.DataFrame, work: pd.DataFrame, graphs: Graphs
) -> StepMedians:
    """NOTE a step that launched nothing counts as 0 where anything was recorded at all."""
    launches = calls[calls["launches"]].groupby("step").size().reindex(steps.index, fill_value=0)
    kernels = work[work["kind"] == "kernel"].groupby("step").size()
    worked = _busy_by("step", work)
    busy = [worked.get(step, 0) for step in steps.index]
    return StepMedians(
        wall_ns=float((steps["end_ns"] - steps["start_ns"]).median()),
        launches=float(launches.median()) if len(calls) else None,
        kernels=(
            float(kernels.reindex(steps.index, fill_value=0).median())
            if len(work) and graphs != "hidden"
            else None
        ),
        gpu_busy_ns=float(np.median(busy)) if len(work) else None,
    )


def _gaps(work: pd.DataFrame, steps: pd.DataFrame) -> tuple[GpuGaps | None, dict[str, int]]:
    """Idle time within the captured steps, and by the phase whose work ended it."""
    import pandas as pd

    work = _timed(work)
    if not len(steps) or not len(work) or work["gpu"].nunique(dropna=False) > 1:
        return None, {}
    begin, end = int(steps["start_ns"].iloc[0]), int(steps["end_ns"].max())
    work = work[(work["end_ns"] > begin) & (work["start_ns"] < end)].sort_values("start_ns")
    starts = work["start_ns"].clip(lower=begin).to_numpy()
    ends = work["end_ns"].clip(upper=end).to_numpy()
    reached = np.maximum.accumulate(np.concatenate(([begin], ends)))
    before = np.maximum(np.append(starts, end) - reached, 0)
    waits = pd.Series(before[:-1]).groupby(work["phase"].to_numpy()).sum()
    idle = int(before.sum())
    gaps = GpuGaps(
        window_ns=end - begin,
        busy_ns=end - begin - idle,
        idle_ns=idle,
        longest_gap_ns=int(before.max()),
    )
    return gaps, {str(phase): int(wait) for phase, wait in waits.items()}


def _graphs(work: pd.DataFrame) -> Graphs:
    if (work["kind"] == "graph").any():
        return "hidden"
    return "nodes" if work["from_graph"].any() else "none"


def _timed(work: pd.DataFrame) -> pd.DataFrame:
    """Kernels and whole graphs whose start and end are known."""
    known = work[work["kind"] != "copy"].dropna(subset=_TIMES)
    return known.astype(dict.fromkeys(_TIMES, "int64"))


def _busy_by(column: str, work: pd.DataFrame) -> dict[Any, int]:
    """Union of the timed work for each value of `column`."""
    timed = _timed(work)
    start, end = timed["start_ns"].to_numpy(), timed["end_ns"].to_numpy()
    groups = timed.groupby(column).indices
    return {value: union_ns(start[rows], end[rows]) for value, rows in groups.items()}


def _total(rows: pd.DataFrame) -> int | None:
    """Sum of the known durations; None where there are rows and none of them is known."""
    known = rows["duration_ns"].dropna()
    return None if len(rows) and not len(known) else int(known.sum())


def _by_phase(work: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    groups = dict(iter(work.groupby("phase")))
    return [(phase, groups[phase]) for phase in (*STEP_PHASES, OUTSIDE) if phase in groups]
