"""PyTorch profiler traces (Kineto, Chrome JSON), plain or gzipped, of torch 1.8 and later.

`ts` and `dur` are microseconds whatever `displayTimeUnit` says; newer traces add
`baseTimeNanoseconds`. Categories changed their spelling: they are compared in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from profiles.errors import UnreadableProfile
from profiles.nsight.content import read_text
from profiles.nsight.reading import Reading
from profiles.nsight.summary import GpuDescription
from profiles.nsight.times import plausible
from profiles.nsight.trace_json import TraceJson

_COPY = re.compile(r"Mem(?:cpy|set)\s*(\w+)?\s*(?:\((\w+)(?:\s*->\s*(\w+))?\))?")
_TIMES = ["start_ns", "end_ns"]
_PLACE = ["gpu", "device", "stream", "context", "correlation_id"]
_KERNEL = ["name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
_COLUMNS = {
    "kernels": [*_TIMES, *_PLACE, *_KERNEL, "registers_per_thread"],
    "copies": [*_TIMES, *_PLACE, "kind", "source_memory", "target_memory", "bytes"],
    "api_calls": [*_TIMES, "pid", "tid", "correlation_id", "name"],
    "ranges": [*_TIMES, "pid", "tid", "domain", "name", "style"],
}
_LARGEST = Decimal(2**62)
_EPOCH_2001_US = 10**15  # times beyond are wall clock, smaller ones a counter since boot
Row = tuple[Any, ...]


def read(reading: Reading) -> None:
    """Read a trace. Raises UnreadableProfile when it has no events."""
    trace = TraceJson(reading, read_text(reading))
    rows: dict[str, list[Row]] = {name: [] for name in _COLUMNS}
    full = False
    for event in trace.events():
        kind = _KINDS.get(str(event.get("cat", "")).lower())
        if kind is None or event.get("ph", "X") != "X":
            continue
        table, build = kind
        if len(rows[table]) < reading.max_rows:
            rows[table].append(build(event, event.get("args")))
        else:
            full = True
    if not trace.has_events:
        raise UnreadableProfile(
            reading.path,
            "JSON without traceEvents",
            "Give a trace written by torch.profiler's export_chrome_trace.",
        )
    if full:
        reading.problem(f"only the first {reading.max_rows:,} events of a kind were read")
    _add_tables(reading, rows, trace.facts)
    _describe(reading, trace.facts)


def _add_tables(reading: Reading, rows: dict[str, list[Row]], facts: dict[str, Any]) -> None:
    """Keep the tables with times from the earliest event on."""
    tables: dict[str, dict[str, Any]] = {}
    for name, of_table in rows.items():
        if not of_table:
            continue
        columns = dict(zip(_COLUMNS[name], zip(*of_table, strict=True), strict=True))
        arrays = {key: pa.array(values) for key, values in columns.items()}
        for key in _TIMES:
            arrays[key] = pa.array(columns[key], pa.int64())
        tables[name] = plausible(reading, name, arrays)
    starts = [pc.min(columns["start_ns"]).as_py() for columns in tables.values()]
    origin = min((start for start in starts if start is not None), default=0)
    for name, columns in tables.items():
        for key in _TIMES:
            columns[key] = pc.subtract(columns[key], origin)
        reading.add(name, columns)
    base = facts.get("baseTimeNanoseconds")
    if isinstance(base, int) and 0 <= base < 2**62:
        reading.origin_epoch_ns = base + origin
    elif origin > _EPOCH_2001_US * 1000:
        reading.origin_epoch_ns = origin
    else:
        reading.missing["origin_epoch_ns"] = "the trace does not say when its clock began"


def _describe(reading: Reading, facts: dict[str, Any]) -> None:
    schema = facts.get("schemaVersion")
    reading.schema_version = str(schema) if schema is not None else None
    devices = facts.get("deviceProperties")
    for device in devices if isinstance(devices, list) else []:
        number = device.get("id") if isinstance(device, dict) else None
        if isinstance(number, int) and number < 2**31:
            name = _name(device) if "name" in device else None
            reading.gpus.append(
                GpuDescription(gpu=number, cuda_device=number, name=name, uuid=None)
            )


def _kernel(event: dict[str, Any], args: Any) -> Row:
    return (
        *_times(event),
        *_place(args),
        _name(event),
        *_three(_of(args, "grid")),
        *_three(_of(args, "block")),
        _integer(_of(args, "registers per thread")),
    )


def _copy(event: dict[str, Any], args: Any) -> Row:
    name = _name(event)
    found = _COPY.match(name)
    is_set = name.lower().startswith("memset")
    kind = "memset" if is_set else (found[1] if found and found[1] else name)
    source, target = (found[2], found[3]) if found else (None, None)
    if is_set:
        source, target = None, source
    memories = (source.lower() if source else None, target.lower() if target else None)
    return (*_times(event), *_place(args), kind, *memories, _integer(_of(args, "bytes")))


def _api(event: dict[str, Any], args: Any) -> Row:
    correlation = _integer(_of(args, "correlation"))
    return (*_times(event), *_thread(event), correlation, _name(event))


def _range(event: dict[str, Any], _args: Any) -> Row:
    return (*_times(event), *_thread(event), "", _name(event), "record_function")


# NOTE gpu_user_annotation spans lie over kernels and cuda_sync events are waits: neither is work.
_KINDS: dict[str, tuple[str, Callable[[dict[str, Any], Any], Row]]] = {
    "kernel": ("kernels", _kernel),
    "gpu_memcpy": ("copies", _copy),
    "gpu_memset": ("copies", _copy),
    "memcpy": ("copies", _copy),
    "memset": ("copies", _copy),
    "cuda_runtime": ("api_calls", _api),
    "cuda_driver": ("api_calls", _api),
    "runtime": ("api_calls", _api),
    "user_annotation": ("ranges", _range),
}


def _times(event: dict[str, Any]) -> tuple[int | None, int | None]:
    start, duration = _nanoseconds(event.get("ts")), _nanoseconds(event.get("dur"))
    end = start + duration if start is not None and duration is not None else None
    return start, end if end is not None and abs(end) < 2**62 else None


def _nanoseconds(microseconds: Any) -> int | None:
    if isinstance(microseconds, bool) or not isinstance(microseconds, int | Decimal):
        return None
    exact = Decimal(microseconds)
    if not exact.is_finite() or abs(exact) * 1000 >= _LARGEST:
        return None
    return int((exact * 1000).to_integral_value())


def _place(args: Any) -> tuple[int | None, ...]:
    device = _integer(_of(args, "device"))
    rest = (_integer(_of(args, name)) for name in ("stream", "context", "correlation"))
    return (device, device, *rest)


def _thread(event: dict[str, Any]) -> tuple[int | None, int | None]:
    return _integer(event.get("pid")), _integer(event.get("tid"))


def _three(value: Any) -> tuple[int | None, int | None, int | None]:
    if not isinstance(value, list) or len(value) != 3:
        return None, None, None
    return _integer(value[0]), _integer(value[1]), _integer(value[2])


def _name(event: dict[str, Any]) -> str:
    """The name; half of a surrogate pair, which JSON can hold but UTF-8 cannot, becomes `?`."""
    return str(event.get("name")).encode("utf-8", "replace").decode()


def _of(args: Any, key: str) -> Any:
    return args.get(key) if isinstance(args, dict) else None


def _integer(value: Any) -> int | None:
    """An int64, also when it is written as text."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**62:
        return None
    return value
