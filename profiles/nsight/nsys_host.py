"""What the host did in an Nsight Systems export: CUDA API calls, NVTX ranges, diagnostics."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from profiles.nsight.nsys_strings import Strings
from profiles.nsight.nsys_target import pid_of, tid_of
from profiles.nsight.reading import Reading
from profiles.nsight.schemas import INT, TEXT
from profiles.nsight.sqlite_source import SqliteSource
from profiles.nsight.times import plausible

_BACKTRACE = 67  # event class whose rows repeat a call that has its own row
_STYLES = {59: "push_pop", 60: "start_end"}
_DOMAIN_CREATE = 75
_FIRST_TYPE, _LAST_TYPE = 1, 127  # 33 category, 34 mark, 39 thread name, 97 to 99 other names
_SEVERITIES = {1: "info", 2: "warning", 3: "error", 4: "verbose"}
_MAX_DIAGNOSTICS = 2_000


def read_api_calls(source: SqliteSource, reading: Reading, strings: Strings) -> None:
    """Fill `api_calls`: runtime and driver calls, under the names that the driver gives them."""
    kinds = {
        "start": INT,
        "end": INT,
        "eventClass": INT,
        "globalTid": INT,
        "correlationId": INT,
        "nameId": INT,
        "returnValue": INT,
    }
    table = source.find("CUPTI_ACTIVITY_KIND_RUNTIME")
    read = source.read(table, kinds, ("start", "end", "nameId"))
    if read is None:
        return
    if read["eventClass"].null_count:
        reading.problem("API calls: without event classes some calls may be counted twice")
    repeats = pc.fill_null(pc.equal(read["eventClass"], _BACKTRACE), False)
    if (count := pc.sum(repeats).as_py() or 0) > 0:
        reading.info(f"{count} CUDA backtrace rows that repeat a call were left out")
        read = {name: values.filter(pc.invert(repeats)) for name, values in read.items()}
    columns = {
        "start_ns": read["start"],
        "end_ns": read["end"],
        "pid": pa.chunked_array([pid_of(read["globalTid"])]),
        "tid": pa.chunked_array([tid_of(read["globalTid"])]),
        "correlation_id": read["correlationId"],
        "name": pa.chunked_array([strings.names(read["nameId"], "API calls")]),
        "return_value": read["returnValue"],
    }
    reading.add("api_calls", plausible(reading, "API calls", columns))


def read_ranges(source: SqliteSource, reading: Reading, strings: Strings) -> None:
    """Fill `ranges`: push/pop and start/end ranges of NVTX; marks and names are not ranges."""
    kinds = {
        "start": INT,
        "end": INT,
        "eventType": INT,
        "text": TEXT,
        "textId": INT,
        "domainId": INT,
        "globalTid": INT,
    }
    table = source.find("NVTX_EVENTS")
    if table is None:
        reading.missing["ranges"] = "the report has no NVTX table"
        return
    read = source.read(table, kinds, ("start", "end", "eventType"))
    if read is None:
        return
    domains, events = _ranges_of(pa.table(read), reading)
    if not len(events):
        return
    columns = {
        "start_ns": events["start"],
        "end_ns": events["end"],
        "pid": pa.chunked_array([pid_of(events["globalTid"])]),
        "tid": pa.chunked_array([tid_of(events["globalTid"])]),
        "domain": pa.chunked_array([_looked_up(events["domainId"], domains)]),
        "name": pa.chunked_array([_range_names(events, strings)]),
        "style": pa.chunked_array([_looked_up(events["eventType"], _STYLES)]),
    }
    unfinished = events["end"].null_count
    if unfinished:
        reading.info(f"{unfinished} NVTX ranges were still open when the capture ended")
    reading.add("ranges", plausible(reading, "NVTX ranges", columns, unfinished=True))


def read_diagnostics(source: SqliteSource, reading: Reading) -> None:
    """Fill `diagnostics`, and repeat Nsight's own errors and warnings as notes."""
    kinds = {"timestamp": INT, "severity": INT, "text": TEXT}
    read = source.read(source.find("DIAGNOSTIC_EVENT"), kinds, ("text",))
    if read is None:
        return
    rows = zip(*(read[name].to_pylist() for name in kinds), strict=True)
    kept = [
        (timestamp, _SEVERITIES.get(severity), "Nsight Systems", text)
        for timestamp, severity, text in list(rows)[:_MAX_DIAGNOSTICS]
    ]
    names = ["timestamp_ns", "severity", "source", "text"]
    reading.add_rows("diagnostics", names, list(kept))
    for _, severity, _, text in kept:
        if severity in ("warning", "error") and text:
            reading.warn(f"Nsight Systems: {text.strip()[:400]}")


def _ranges_of(events: pa.Table, reading: Reading) -> tuple[dict[int, str], pa.Table]:
    """Names of the domains, and the events that are ranges."""
    types = pc.fill_null(events["eventType"], 0)
    strange = pc.sum(pc.or_(pc.less(types, _FIRST_TYPE), pc.greater(types, _LAST_TYPE))).as_py()
    if strange:
        reading.problem(f"NVTX ranges: {strange} events of no known type left out")
    domains = _domains(events.filter(pc.equal(types, _DOMAIN_CREATE)))
    return domains, events.filter(pc.is_in(types, pa.array(list(_STYLES))))


def _range_names(events: pa.Table, strings: Strings) -> pa.Array:
    """`text` for plain strings, StringIds[textId] for registered ones; one file mixes both."""
    by_id = events["textId"]
    registered = pc.is_null(events["text"])
    ids = pc.if_else(registered, by_id, pa.scalar(None, INT))
    named = strings.names(_chunked(ids), "NVTX ranges").cast(TEXT)
    return pc.coalesce(events["text"].combine_chunks(), named)


def _domains(created: pa.Table) -> dict[int, str]:
    ids, texts = created["domainId"].to_pylist(), created["text"].to_pylist()
    named = {key: text for key, text in zip(ids, texts, strict=True) if key is not None and text}
    return {0: ""} | named


def _looked_up(codes: pa.ChunkedArray, words: dict[int, str]) -> pa.Array:
    places = pc.index_in(codes.combine_chunks(), value_set=pa.array(list(words), INT))
    return pa.array(list(words.values()), TEXT).take(places)


def _chunked(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
