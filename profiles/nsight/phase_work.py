"""Which phase and step of the engine each piece of GPU work and each launch belongs to.

Kernels, graphs and copies run later than they are launched, so they are joined by the API call that
launched them, and the call by the range that its thread was in.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from profiles.records import STEP_PHASES

if TYPE_CHECKING:
    import pandas as pd

OUTSIDE = "outside"  # launched in no phase
STEP = "step"
WORK = {"kernels": "kernel", "graph_spans": "graph", "copies": "copy"}
_CALL = ["pid", "correlation_id"]
_PLACE = ["phase", "step", "from_graph"]
_LAUNCH = "^cu(da)?(Graph)?Launch"
_GRAPH_LAUNCH = "^cu(da)?GraphLaunch"
# Nsight Compute's column of push/pop ranges: PID "<domain>:name:..." once for every open range.
_NVTX_COLUMN = "Push/Pop_Range"
_NVTX_RANGE = re.compile(rf">:({'|'.join(STEP_PHASES)}):")


def phase_ranges(tables: dict[str, pa.Table]) -> pd.DataFrame:
    """Whole ranges of the phases and of `step`, in time order; empty without any."""
    columns = ["name", "start_ns", "end_ns", "pid", "tid"]
    table = _table(tables, "ranges", columns)
    wanted = pc.is_in(table["name"], pa.array([*STEP_PHASES, STEP]))
    timed = pc.and_(table["start_ns"].is_valid(), table["end_ns"].is_valid())
    whole = table.filter(pc.and_(wanted, timed))
    return whole.to_pandas().sort_values("start_ns", ignore_index=True)


def launch_calls(tables: dict[str, pa.Table], ranges: pd.DataFrame) -> pd.DataFrame:
    """API calls with their `phase` and `step`, and whether they launch, and launch a graph."""
    columns = ["name", "start_ns", "pid", "tid", "correlation_id"]
    calls = _table(tables, "api_calls", columns)
    frame = calls.drop_columns("name").to_pandas()
    for column, pattern in (("launches", _LAUNCH), ("from_graph", _GRAPH_LAUNCH)):
        matches = pc.fill_null(pc.match_substring_regex(calls["name"], pattern), False)
        frame[column] = matches.to_pandas().astype(bool)
    phases, steps = ranges[ranges["name"] != STEP], ranges[ranges["name"] == STEP]
    names = np.array([*phases["name"], OUTSIDE], dtype=object)
    frame["phase"] = names[_enclosing(frame, phases)]
    frame["step"] = _enclosing(frame, steps)
    return frame


def gpu_work(tables: dict[str, pa.Table], calls: pd.DataFrame) -> pd.DataFrame:
    """Kernels, whole graphs and copies with `kind`, `phase`, `step` and `from_graph`."""
    import pandas as pd

    columns = ["start_ns", "end_ns", "duration_ns", "gpu", *_CALL]
    of_kernels = ["name", "graph_node_id"]
    parts = []
    for source, kind in WORK.items():
        wanted = columns + of_kernels if kind == "kernel" else columns
        part = _table(tables, source, wanted).to_pandas()
        parts.append(part.assign(kind=kind))
    work = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    work = work.reindex(columns=[*columns, *of_kernels, "kind"])
    keys = _CALL if work["pid"].notna().any() else ["correlation_id"]  # a trace of one process
    known = calls.dropna(subset=keys).drop_duplicates(keys)
    work = work.merge(known[[*keys, *_PLACE]], on=keys, how="left")
    work["phase"] = work["phase"].fillna(OUTSIDE)
    work["step"] = work["step"].fillna(-1).astype(int)
    work["from_graph"] = work["from_graph"].eq(True) | work["graph_node_id"].notna()
    return work


def profiled_launches(tables: dict[str, pa.Table]) -> pd.DataFrame:
    """Kernels of Nsight Compute with the phase that its NVTX column names."""
    kernels = _table(tables, "kernels", ["launch_id", "name", "duration_ns", "gpu"]).to_pandas()
    metrics = _table(tables, "launch_metrics", ["launch_id", "metric", "text"])
    is_nvtx = pc.match_substring(metrics["metric"], _NVTX_COLUMN)
    cells = metrics.filter(is_nvtx).drop_columns("metric").to_pylist()
    phase = {
        cell["launch_id"]: found[-1]
        for cell in cells
        if (found := _NVTX_RANGE.findall(cell["text"] or ""))
    }
    kernels["phase"] = [phase.get(number, OUTSIDE) for number in kernels["launch_id"]]
    return kernels.assign(kind="kernel")


def _enclosing(calls: pd.DataFrame, ranges: pd.DataFrame) -> NDArray[np.int64]:
    """Row of the range that each call began in, on its own thread; -1 for none.

    Ranges of one thread do not overlap. Where one thread alone has ranges, calls of any thread
    count: older traces number the threads of calls in another way.
    """
    found = np.full(len(calls), -1, dtype=np.int64)
    groups = ranges.groupby(["pid", "tid"], dropna=False).indices
    for (pid, tid), rows in groups.items():
        start, end = (ranges[name].to_numpy()[rows] for name in ("start_ns", "end_ns"))
        at = calls["start_ns"].to_numpy()
        place = np.searchsorted(start, at, side="right") - 1
        inside = (place >= 0) & (at <= end[place])
        if len(groups) > 1:
            inside &= ((calls["pid"] == pid) & (calls["tid"] == tid)).to_numpy()
        found[inside] = rows[place[inside]]
    return found


def _table(tables: dict[str, pa.Table], name: str, columns: list[str]) -> pa.Table:
    """Columns of a table with text as text; without rows where the capture has no such table."""
    from profiles.nsight.schemas import SCHEMAS

    table = tables.get(name, SCHEMAS[name].empty_table()).select(columns)
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            plain = table[field.name].cast(pa.string())
            table = table.set_column(place, field.name, plain)
    return table
