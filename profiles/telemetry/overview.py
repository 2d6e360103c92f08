"""A trial's telemetry thinned for a screen: `overview-<n>.parquet` beside `merged-<n>.parquet`.

A chart of a whole trial needs a few hundred points a counter, so that opening a long trial reads
this file and not its millions of samples. One row is one point of one counter; the file's metadata
hold when each source was sampled and the buckets of the clocks that were held.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from profiles.tables import write_table
from profiles.telemetry.columns import HOST
from profiles.telemetry.held_clocks import REASONS, HeldClocks, held_clocks
from profiles.telemetry.parts import part_paths
from profiles.telemetry.samples import SourceSamples, read_samples
from profiles.telemetry.thinning import Series, thin

CURVES = (
    "sm_active_pct",
    "tensor_active_pct",
    "dram_active_pct",
    "gpu_busy_pct",
    "memory_used_bytes",
    "power_mw",
    "sm_clock_mhz",
    "temperature_c",
    "host_cpu_pct",
    "host_memory_used_bytes",
)
HELD = "throttle_reasons"
SHOWN = (*CURVES, HELD)
_VALUES = ("t_s", "low", "mean", "high")
Span = tuple[float, float]


@dataclass(frozen=True)
class Overview:
    """Every source of a trial, thinned. Times are those of `t_s`. Shared: never change it.

    `curves` and `held` have only what was measured at any time, by source and column.
    """

    spans_s: dict[str, Span]
    curves: dict[str, dict[str, Series]]
    held: dict[str, HeldClocks]

    @property
    def gpus(self) -> list[str]:
        """UUIDs of the sampled GPUs."""
        return sorted(self.spans_s.keys() - {HOST})

    @property
    def span_s(self) -> Span | None:
        """First and last moment of any source; None without samples."""
        return _hull(self.spans_s)


def overview_of(samples: Mapping[str, SourceSamples], window: Span | None = None) -> Overview:
    """Thin samples; clocks that were held are shared out over `window`, default all the time."""
    spans = {source: (float(of.t_s[0]), float(of.t_s[-1])) for source, of in samples.items()}
    window = window or _hull(spans)
    curves, held = {}, {}
    for source, of in samples.items():
        measured = [column for column in CURVES if of.measured(column)]
        curves[source] = {column: thin(of.t_s, of.columns[column]) for column in measured}
        if window is not None and of.measured(HELD):
            held[source] = held_clocks(of.t_s, of.columns[HELD], window)
    return Overview(spans, curves, held)


def zoomed(folder: Path, whole: Overview, gpu: str | None, window: Span) -> Overview:
    """The host and `gpu` of `whole` inside `window`, from the samples themselves."""
    sources = [source for source in (HOST, gpu) if source in whole.spans_s]
    near = overview_of(read_samples(folder, SHOWN, sources, window), window)
    nothing = np.empty(0)
    empty = Series(nothing, nothing, nothing, nothing)
    edges = np.array(window)
    return Overview(
        whole.spans_s,
        {
            source: {
                column: near.curves.get(source, {}).get(column, empty)
                for column in whole.curves[source]
            }
            for source in sources
        },
        {
            source: near.held.get(source, HeldClocks(edges, {}))
            for source in sources
            if source in whole.held
        },
    )


def read_overview(folder: Path) -> Overview:
    """Read what `write_overview` wrote; telemetry without it is read and thinned here."""
    paths = part_paths(folder)
    if len(paths) == 1 and overview_path(paths[0]).exists():
        try:
            return _from_table(pq.read_table(overview_path(paths[0])))
        except (pa.ArrowInvalid, OSError):
            pass  # torn: the samples are still there
    return overview_of(read_samples(folder, SHOWN))


def write_overview(folder: Path, merged: Path) -> None:
    """Write the overview of a folder whose samples all lie in `merged`. Raises StorageError."""
    write_table(overview_path(merged), _to_table(overview_of(read_samples(folder, SHOWN))))


def overview_path(merged: Path) -> Path:
    """Where the overview of a merged file lies."""
    return merged.with_name(f"overview-{merged.name.removeprefix('merged-')}")


def _hull(spans: Mapping[str, Span]) -> Span | None:
    if not spans:
        return None
    return min(first for first, _ in spans.values()), max(last for _, last in spans.values())


def _to_table(overview: Overview) -> pa.Table:
    rows = list(_rows(overview))
    lengths = [len(series.seconds) for _, _, series in rows]
    columns: dict[str, pa.Array] = {
        name: pa.array(np.repeat([row[place] for row in rows], lengths), pa.string())
        for place, name in enumerate(("source", "column"))
    }
    for name, field in zip(_VALUES, ("seconds", "low", "mean", "high"), strict=True):
        each = [getattr(series, field) for _, _, series in rows]
        columns[name] = pa.array(np.concatenate([np.empty(0), *each]))
    held = {source: held.edges_s.tolist() for source, held in overview.held.items()}
    told = {"spans_s": json.dumps(overview.spans_s), "held_edges_s": json.dumps(held)}
    return pa.table(columns).replace_schema_metadata(told)


def _rows(overview: Overview) -> Iterator[tuple[str, str, Series]]:
    for source, curves in overview.curves.items():
        for column, series in curves.items():
            yield source, column, series
        if source in overview.held:
            held = overview.held[source]
            for reason, percents in held.percents.items():
                yield source, reason, Series(held.edges_s[:-1], percents, percents, percents)


def _from_table(table: pa.Table) -> Overview:
    spans = json.loads(table.schema.metadata[b"spans_s"])
    edges = json.loads(table.schema.metadata[b"held_edges_s"])
    values = [table[name].to_numpy() for name in _VALUES]
    curves: dict[str, dict[str, Series]] = {source: {} for source in spans}
    held = {source: HeldClocks(np.array(at), {}) for source, at in edges.items()}
    for source, column, part in _runs(table):
        seconds, low, mean, high = (each[part] for each in values)
        if column in REASONS.values():
            held[source].percents[column] = mean
        else:
            thinned = not np.array_equal(low, high, equal_nan=True)
            curves[source][column] = (
                Series(seconds, low, mean, high) if thinned else Series(seconds, mean, mean, mean)
            )
    return Overview({source: (a, b) for source, (a, b) in spans.items()}, curves, held)


def _runs(table: pa.Table) -> Iterator[tuple[str, str, slice]]:
    """Source, column and rows of each counter, whose points lie together."""
    keys = [table[name].combine_chunks().dictionary_encode() for name in ("source", "column")]
    codes = np.column_stack([key.indices.to_numpy() for key in keys])
    starts = np.flatnonzero(np.append(True, np.any(np.diff(codes, axis=0), axis=1)[: len(codes)]))
    for first, last in zip(starts, [*starts[1:], len(codes)], strict=True):
        if first < last:
            source, column = (
                key.dictionary[int(code)].as_py()
                for key, code in zip(keys, codes[first], strict=True)
            )
            yield source, column, slice(int(first), int(last))
