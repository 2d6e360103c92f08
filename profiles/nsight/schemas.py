"""The normalised tables that every importer fills; units stand in the column names.

Times: `start_ns`, `end_ns` and `timestamp_ns` count from the capture's own origin, whose wall clock
is the summary's `origin_epoch_ns`. `gpu` is the report's physical GPU; `device` is the CUDA ordinal
inside the process, which another process may use for another GPU. A null is unknown, never zero.
"""

from __future__ import annotations

import pyarrow as pa

INT = pa.int64()
FLOAT = pa.float64()
TEXT = pa.string()
NAME = pa.dictionary(pa.int32(), pa.string())  # text that repeats

_TIMES = {"start_ns": INT, "end_ns": INT, "duration_ns": INT}
_PLACE = {
    "gpu": INT,
    "device": INT,
    "stream": INT,
    "context": INT,
    "pid": INT,
    "correlation_id": INT,
}
_STATISTICS = {
    "instances": INT,
    "total_ns": INT,
    "mean_ns": FLOAT,
    "median_ns": FLOAT,
    "min_ns": INT,
    "max_ns": INT,
    "stddev_ns": FLOAT,
}

_COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "kernels": {
        **_TIMES,
        **_PLACE,
        "launch_id": INT,  # Nsight Compute's number of the launch
        "name": NAME,  # demangled, what `nsys stats` groups by
        "short_name": NAME,
        "grid_x": INT,
        "grid_y": INT,
        "grid_z": INT,
        "block_x": INT,
        "block_y": INT,
        "block_z": INT,
        "registers_per_thread": INT,
        "static_shared_memory_bytes": INT,
        "dynamic_shared_memory_bytes": INT,
        "graph_node_id": INT,  # null outside CUDA graphs
    },
    # A whole CUDA graph launch, the kernels inside it hidden.
    "graph_spans": {**_TIMES, **_PLACE, "graph_id": INT, "graph_exec_id": INT},
    "copies": {
        **_TIMES,
        **_PLACE,
        "kind": NAME,  # HtoD, DtoH, UVM HtoD, ..., memset
        "bytes": INT,
        "source_memory": NAME,
        "target_memory": NAME,
        "graph_node_id": INT,
    },
    "api_calls": {
        **_TIMES,
        "pid": INT,
        "tid": INT,
        "correlation_id": INT,
        "name": NAME,
        "return_value": INT,
    },
    "ranges": {**_TIMES, "pid": INT, "tid": INT, "domain": NAME, "name": NAME, "style": NAME},
    # The unit of `value` ends the metric's name: sm_active_pct, gpc_clock_mhz.
    "gpu_metrics": {"timestamp_ns": INT, "gpu": INT, "metric": NAME, "value": FLOAT},
    # Nsight Compute, one row a launch and metric; `unit` is a base unit (ns, byte, hz, %).
    "launch_metrics": {
        "launch_id": INT,
        "section": NAME,
        "metric": NAME,
        "unit": NAME,
        "value": FLOAT,
        "text": NAME,  # the cell where it is no number
    },
    "diagnostics": {"timestamp_ns": INT, "severity": NAME, "source": NAME, "text": TEXT},
    "kernel_totals": {"name": TEXT, **_STATISTICS, "name_is_cut": pa.bool_()},
    "copy_totals": {"kind": TEXT, "count": INT, "total_bytes": INT, "total_ns": INT},
    "api_totals": {"name": TEXT, **_STATISTICS},
    "range_totals": {"domain": TEXT, "name": TEXT, "style": TEXT, **_STATISTICS},
    # Kernels by the NVTX range that launched them.
    "range_kernels": {
        "domain": TEXT,
        "range": TEXT,
        "style": TEXT,
        "pid": INT,
        "tid": INT,
        "range_instances": INT,
        "kernel": TEXT,
        **_STATISTICS,
    },
}

SCHEMAS: dict[str, pa.Schema] = {
    name: pa.schema(list(columns.items())) for name, columns in _COLUMNS.items()
}
