"""Telemetry as arrays: only the columns, sources and moments that are asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from profiles.telemetry.parts import SCHEMA, part_paths, whole_parts
from profiles.telemetry.thinning import Floats


@dataclass(frozen=True)
class SourceSamples:
    """One source: the host or a GPU. `t_s` rises; a value that was not measured is NaN."""

    t_s: Floats
    columns: dict[str, Floats]

    def measured(self, column: str) -> bool:
        """Whether the column has any value."""
        return not bool(np.isnan(self.columns[column]).all())


def read_samples(
    folder: Path,
    columns: Sequence[str],
    sources: Collection[str] | None = None,
    window: tuple[float, float] | None = None,
) -> dict[str, SourceSamples]:
    """Read by source; `window` is in seconds of `t_s`, its ends included.

    A part that is not whole Parquet is left out, which shows as a gap.
    """
    table = _table(folder, ["t_s", "source", *columns], _wanted(sources, window))
    codes = pc.dictionary_encode(table["source"]).combine_chunks()
    place = codes.indices.to_numpy()
    t_s = table["t_s"].to_numpy()
    order = np.lexsort((t_s, place)) if _unordered(t_s) else np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(len(codes.dictionary) + 1))
    values = {
        name: table[name].cast(pa.float64(), safe=False).to_numpy()[order] for name in columns
    }
    t_s = t_s[order]
    return {
        source: SourceSamples(t_s[a:b], {name: each[a:b] for name, each in values.items()})
        for source, a, b in zip(codes.dictionary.to_pylist(), bounds[:-1], bounds[1:], strict=True)
    }


def _wanted(
    sources: Collection[str] | None, window: tuple[float, float] | None
) -> ds.Expression | None:
    conditions = []
    if sources is not None:
        conditions.append(ds.field("source").isin(list(sources)))
    if window is not None:
        conditions += [ds.field("t_s") >= window[0], ds.field("t_s") <= window[1]]
    return reduce(and_, conditions) if conditions else None


def _table(folder: Path, columns: list[str], wanted: ds.Expression | None) -> pa.Table:
    def read(paths: list[Path]) -> pa.Table:
        names = [str(path) for path in paths]
        return ds.dataset(names, schema=SCHEMA, format="parquet").to_table(columns, filter=wanted)

    try:
        return read(part_paths(folder))
    except (pa.ArrowInvalid, OSError):
        return whole_parts(folder, lambda path: read([path])).select(columns)


def _unordered(t_s: Floats) -> bool:
    return bool((np.diff(t_s) < 0).any())
