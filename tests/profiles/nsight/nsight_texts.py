"""Small text profiles: `nsys stats`, Nsight Compute CSV, PyTorch traces."""

import json

STATS_CSV = """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),Name
60.0,6000,3,2000.0,2000.0,1000,3000,"void softmax<float, int>(float *)"
40.0,4000,2,2000.0,2000.0,2000,2000,gemm_64x64
"""

STATS_PRINTED = """the program's own words
[5/7] Executing 'cuda_gpu_kern_sum' stats report

 Time (%)  Total Time (ns)  Instances  Avg (ns)  Med (ns)  Min (ns)  Max (ns)     Name
 --------  ---------------  ---------  --------  --------  --------  --------  ----------
     60.0            6,000          3   2,000.0   2,000.0     1,000     3,000  softmax

     40.0            4,000          2   2,000.0   2,000.0     2,000     2,000  gemm_64x64

[6/7] Executing 'osrt_sum' stats report
SKIPPED: x.sqlite does not contain OS Runtime trace data.

Generated:
    report.nsys-rep
"""


def stats_json():
    return "Generating SQLite file\n" + json.dumps(
        [
            {
                "Time (%)": 60.0,
                "Total Time (ns)": 6000,
                "Instances": 3,
                "Avg (ns)": 2000.0,
                "Name": "softmax",
            },
            {
                "Time (%)": 40.0,
                "Total Time (ns)": 4000,
                "Instances": 2,
                "Avg (ns)": 2000.0,
                "Name": "gemm",
            },
        ],
        indent=1,
    )


_NCU_HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC"'
)


def _ncu_identity(launch, name="gemm(float, int)"):
    return f'"{launch}","17","python","host","{name}","1","7","(256, 1, 1)","(64, 2, 1)","0","9.0"'


def ncu_details(values=("1,234.56", "21,058,944", "65.77"), time_unit="us"):
    """Duration, a count and a percentage of two launches, and one rule."""
    metrics = list(
        zip(("Duration", "Elapsed Cycles", "Memory Throughput"), (time_unit, "cycle", "%"), values)
    )
    lines = [
        "==PROF== Connected to process 17 (python)",
        '==PROF== Profiling "gemm" - 0: 0%....50%....100% - 9 passes',
        _NCU_HEADER + ',"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name",'
        '"Rule Type","Rule Description"',
    ]
    for launch in range(2):
        identity = _ncu_identity(launch)
        for name, unit, value in metrics:
            lines.append(f'{identity},"GPU Speed Of Light Throughput","{name}","{unit}","{value}",')
        lines.append(f'{identity},"SpeedOfLight","","","","Bottleneck","OPT","Use less memory"')
    return "\n".join([*lines, "==PROF== Disconnected from process 17", ""])


def ncu_raw(durations=("25.408000", "1,041.536000")):
    identities = [_ncu_identity(launch) for launch in range(len(durations))]
    rows = [f'{i},"{d}","1,056"' for i, d in zip(identities, durations)]
    header = _NCU_HEADER + ',"gpu__time_duration.sum","launch__grid_size"'
    units = ",".join(['""'] * 11) + ',"us",""'
    return "\n".join([header, units, *rows, ""])


def kineto(events=None, **facts):
    if events is None:
        events = [
            event("kernel", "gemm", 100.5, 10.25, device=0, stream=7, grid=[1, 2, 3]),
            event("kernel", "softmax", 105.5, 10.25, device=0, stream=8),
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 200, 5, device=0, bytes=4096),
            event("cuda_runtime", "cudaLaunchKernel", 99, 2, correlation=3),
            event("gpu_user_annotation", "step", 0, 1000),
            event("user_annotation", "draft", 90, 20),
            {"ph": "i", "name": "Iteration Start", "ts": 90},
        ]
    return json.dumps({"schemaVersion": 1, **facts, "traceEvents": events}, indent=1)


def event(category, name, ts, dur, **args):
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 2,
            "args": args}  # fmt: skip
