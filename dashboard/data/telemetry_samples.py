"""The telemetry of one trial as arrays: only what charts show, each source apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from profiles.advisor.samples import WATCHED
from profiles.telemetry.columns import HOST
from profiles.telemetry.parts import SCHEMA, Reasons, part_paths, read_reasons

Floats = NDArray[np.float64]
Identity = tuple[str, int, int, int]

SHOWN = (
    "sm_active_pct",
    "tensor_active_pct",
    "dram_active_pct",
    "gpu_busy_pct",
    "memory_used_bytes",
    "power_mw",
    "sm_clock_mhz",
    "temperature_c",
    "throttle_reasons",
    "host_cpu_pct",
    "host_memory_used_bytes",
)
COLUMNS = tuple(dict.fromkeys((*SHOWN, *WATCHED)))


@dataclass(frozen=True)
class SourceSamples:
    """One source: the host or a GPU. `t_s` rises; a value that was not measured is NaN."""

    t_s: Floats
    columns: dict[str, Floats]

    def measured(self, column: str) -> bool:
        """Whether the column has any value."""
        return not bool(np.isnan(self.columns[column]).all())


@dataclass(frozen=True)
class TelemetrySamples:
    """All sources of a trial, and why what is missing is missing. Shared: never change it."""

    sources: dict[str, SourceSamples]
    reasons: Reasons

    @property
    def gpus(self) -> list[str]:
        """UUIDs of the sampled GPUs."""
        return sorted(self.sources.keys() - {HOST})

    @property
    def span_s(self) -> tuple[float, float] | None:
        """First and last moment on the monotonic clock; None without samples."""
        if not self.sources:
            return None
        return (
            min(float(source.t_s[0]) for source in self.sources.values()),
            max(float(source.t_s[-1]) for source in self.sources.values()),
        )


def identity(folder: Path) -> Identity:
    """Changes whenever a sampler writes: folder, files, bytes and newest change."""
    stats = [path.stat() for path in folder.glob("*") if path.suffix in (".parquet", ".json")]
    newest = max((stat.st_mtime_ns for stat in stats), default=0)
    return str(folder), len(stats), sum(stat.st_size for stat in stats), newest


def load(folder: Path) -> TelemetrySamples:
    """Read the folder; a part that is not whole Parquet is left out, which shows as a gap."""
    table = _table(folder)
    codes = pc.dictionary_encode(table["source"]).combine_chunks()
    place = codes.indices.to_numpy()
    t_s = table["t_s"].to_numpy()
    order = np.lexsort((t_s, place)) if _unordered(t_s) else np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(len(codes.dictionary) + 1))
    columns = {
        name: table[name].cast(pa.float64(), safe=False).to_numpy()[order] for name in COLUMNS
    }
    t_s = t_s[order]
    return TelemetrySamples(
        {
            source: SourceSamples(t_s[a:b], {name: values[a:b] for name, values in columns.items()})
            for source, a, b in zip(
                codes.dictionary.to_pylist(), bounds[:-1], bounds[1:], strict=True
            )
        },
        read_reasons(folder),
    )


def watched_frame(samples: TelemetrySamples) -> pd.DataFrame:
    """What the advisor looks at, source by source; a value that was not measured is NaN."""
    names = list(samples.sources)
    each = list(samples.sources.values())
    lengths = [len(source.t_s) for source in each]
    columns = {name: [source.columns[name] for source in each] for name in WATCHED}
    return pd.DataFrame(
        {
            "t_s": _joined([source.t_s for source in each]),
            "source": pd.Categorical.from_codes(np.repeat(np.arange(len(names)), lengths), names),
            **{name: _joined(parts) for name, parts in columns.items()},
        }
    )


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0)


def _table(folder: Path) -> pa.Table:
    """Rows of all parts, only the columns that are shown."""
    columns = ["t_s", "source", *COLUMNS]
    paths = [str(path) for path in part_paths(folder)]
    parts = ds.dataset(paths, schema=SCHEMA, format="parquet")
    try:
        return parts.to_table(columns=columns)
    except (pa.ArrowInvalid, OSError):
        return pa.concat_tables(_whole_parts(paths, columns))


def _whole_parts(paths: list[str], columns: list[str]) -> list[pa.Table]:
    tables = [SCHEMA.empty_table().select(columns)]
    for path in paths:
        try:
            part = ds.dataset(path, schema=SCHEMA, format="parquet")
            tables.append(part.to_table(columns=columns))
        except (pa.ArrowInvalid, OSError):
            continue
    return tables


def _unordered(t_s: Floats) -> bool:
    return bool((np.diff(t_s) < 0).any())
