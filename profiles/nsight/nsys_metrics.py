"""GPU metrics sampled by Nsight Systems: SM, tensor and DRAM activity, clocks, links."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.nsight.metric_names import MetricName, metric_name
from profiles.nsight.reading import Reading
from profiles.nsight.schemas import FLOAT, INT, TEXT
from profiles.nsight.sqlite_source import SqliteSource

_MAX_METRIC_ID = 65_535
_LARGEST = 1e15
_PERCENT_LIMIT = 110.0  # samples a little over 100 exist; more is damage

Definitions = dict[tuple[int, int], str]  # (typeId, metricId), as metricId repeats on every GPU


def read_gpu_metrics(source: SqliteSource, reading: Reading) -> None:
    """Fill `gpu_metrics`. Samples before time zero are left out."""
    table = source.find("GPU_METRICS")
    if table is None:
        reading.missing["gpu_metric_rows"] = (
            "GPU metrics were not sampled (nsys profile --gpu-metrics-devices=all)"
        )
        return
    kinds = {"timestamp": INT, "typeId": INT, "metricId": INT, "value": FLOAT}
    read = source.read(table, kinds, tuple(kinds))
    definitions = _definitions(source)
    if read is None or not definitions:
        if read is not None:
            reading.problem("GPU metrics: the file does not name them (TARGET_INFO_GPU_METRICS)")
        return
    whole = {name: values.combine_chunks() for name, values in read.items()}
    codes, names = _codes(whole, definitions)
    kept = _usable(whole, codes, reading)
    codes = codes[kept]
    values = _scaled(whole["value"].filter(pa.array(kept)), codes, names, reading)
    # NOTE the low byte of typeId is the GPU, as in NVIDIA's own recipes.
    gpu = whole["typeId"].to_numpy(zero_copy_only=False)[kept].astype(np.int64) & 0xFF
    reading.metric_sources |= {metric_name(raw).name: raw for raw in definitions.values()}
    metric = pa.DictionaryArray.from_arrays(
        pa.array(codes, pa.int32()), pa.array([name.name for name in names], TEXT)
    )
    timestamp = whole["timestamp"].filter(pa.array(kept))
    columns = {"timestamp_ns": timestamp, "gpu": pa.array(gpu), "metric": metric, "value": values}
    reading.add("gpu_metrics", columns)


def _definitions(source: SqliteSource) -> Definitions:
    kinds = {"typeId": INT, "metricId": INT, "metricName": TEXT}
    read = source.read(source.find("TARGET_INFO_GPU_METRICS"), kinds, tuple(kinds))
    if read is None:
        return {}
    rows = zip(*(read[name].to_pylist() for name in kinds), strict=True)
    return {
        (type_id, metric_id): raw
        for type_id, metric_id, raw in rows
        if type_id is not None and metric_id is not None and 0 <= metric_id <= _MAX_METRIC_ID
        if raw
    }


def _codes(
    whole: dict[str, pa.Array], definitions: Definitions
) -> tuple[np.ndarray, list[MetricName]]:
    """For each row the place of its metric in the returned list, -1 where it has none."""
    names = {metric_name(raw).name: metric_name(raw) for raw in definitions.values()}
    place = {name: index for index, name in enumerate(names)}
    type_ids = pc.fill_null(whole["typeId"], -1).to_numpy()
    metric_ids = pc.fill_null(whole["metricId"], -1).to_numpy()
    possible = (metric_ids >= 0) & (metric_ids <= _MAX_METRIC_ID)
    codes = np.full(len(type_ids), -1, np.int32)
    for type_id in {key[0] for key in definitions}:
        lookup = np.full(_MAX_METRIC_ID + 1, -1, np.int32)
        for (of_type, metric_id), raw in definitions.items():
            if of_type == type_id:
                lookup[metric_id] = place[metric_name(raw).name]
        rows = possible & (type_ids == type_id)
        codes[rows] = lookup[metric_ids[rows]]
    return codes, list(names.values())


def _usable(whole: dict[str, pa.Array], codes: np.ndarray, reading: Reading) -> np.ndarray:
    known = codes >= 0
    if not known.all():
        reading.problem(f"GPU metrics: {int((~known).sum())} rows of metrics without a name")
    times = pc.fill_null(whole["timestamp"], np.iinfo(np.int64).min).to_numpy()
    early = times < 0
    if early.any():
        reading.info(f"GPU metrics: {int(early.sum())} samples before time zero left out")
    last = float(np.median(times[~early])) * 2 + 1e12 if (~early).any() else 0.0
    late = times > last
    if late.any():
        reading.problem(f"GPU metrics: {int(late.sum())} samples at impossible times left out")
    return known & ~early & ~late


def _scaled(
    stored: pa.Array, codes: np.ndarray, names: list[MetricName], reading: Reading
) -> pa.Array:
    scale = np.array([name.scale for name in names])
    is_percent = np.array([name.is_percent for name in names])
    value = stored.to_numpy(zero_copy_only=False) * scale[codes]
    impossible = is_percent[codes] & ((value < 0) | (value > _PERCENT_LIMIT))
    with np.errstate(invalid="ignore"):
        impossible |= np.abs(value) > _LARGEST
    if impossible.any():
        reading.problem(f"GPU metrics: {int(impossible.sum())} impossible values left out")
    return pa.array(value, FLOAT, mask=impossible | ~np.isfinite(value))
