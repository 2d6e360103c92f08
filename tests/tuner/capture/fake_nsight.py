"""Executables that stand in for nsys and ncu: they run the worker and give a recorded report."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

PID, TID = 4242, 4251
THREAD = (PID << 24) + TID
METRICS = """Possible --gpu-metrics-devices values are:
\t0: NVIDIA H200 PCI[0000:05:00.0]
\tall: Select all supported GPUs
\tcuda-visible: Select GPUs that match CUDA_VISIBLE_DEVICES
\tnone: Disable GPU Metrics [Default]
"""
REFUSED = "Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"

_COMMON = """#!{python}
import pathlib, shutil, subprocess, sys
arguments = sys.argv[1:]
pathlib.Path({log!r}).open("a").write(" ".join(arguments) + "\\n")
options = dict(a.split("=", 1) for a in arguments if a.startswith("--") and "=" in a)
def run_worker():
    first = next(i for i, a in enumerate(arguments) if a == {python!r})
    return subprocess.run(arguments[first:]).returncode
"""
_NSYS = """
if "--gpu-metrics-devices=help" in arguments:
    print({metrics!r})
elif arguments[0] == "export":
    shutil.copy({recorded!r}, arguments[arguments.index("--output") + 1])
else:
    code = run_worker()
    if code == 0 and {recorded!r}:
        name = options["--output"] + ".nsys-rep"
        pathlib.Path(name).write_bytes(b"NVIDIA Tegra Profiler Report 2025.3.2" + bytes(64))
    print("Generated: nothing for people")
    sys.exit(code)
"""
_NCU = """
code = run_worker()
shutil.copy({recorded!r}, options["--log-file"])
sys.exit(code)
"""


class FakeTool:
    """One executable in `folder`; `calls` gives the command lines it was called with."""

    def __init__(self, folder: Path, name: str, recorded: Path | None, metrics: str = METRICS):
        folder.mkdir(exist_ok=True)
        self._log = folder / f"{name}.log"
        body = _COMMON + (_NSYS if name == "nsys" else _NCU)
        path = folder / name
        path.write_text(
            body.format(
                python=sys.executable,
                log=str(self._log),
                recorded=str(recorded or ""),
                metrics=metrics,
            )
        )
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._log.read_text().splitlines()


def record_nsys(path: Path) -> Path:
    """An export of one step: draft launches one kernel, verify a graph of two."""
    names = {1: "gather", 2: "gemm", 3: "cudaLaunchKernel_v7000", 4: "cudaGraphLaunch_v10000"}
    with sqlite3.connect(path) as export:
        export.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        export.executemany("INSERT INTO StringIds VALUES (?, ?)", names.items())
        _table(
            export,
            "CUPTI_ACTIVITY_KIND_KERNEL",
            "start, end, deviceId, streamId, correlationId, globalPid, demangledName, graphNodeId",
            [
                (200, 260, 0, 7, 1, PID << 24, 1, None),
                (300, 400, 0, 7, 2, PID << 24, 2, 11),
                (400, 450, 0, 7, 2, PID << 24, 2, 12),
            ],
        )
        _table(
            export,
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
            [(10, 20, 0, THREAD, 1, 3, 0), (120, 130, 0, THREAD, 2, 4, 0)],
        )
        _table(
            export,
            "NVTX_EVENTS",
            "start, end, eventType, text, textId, domainId, globalTid",
            [
                (0, 1000, 59, "step", None, 0, THREAD),
                (0, 100, 59, "draft", None, 0, THREAD),
                (110, 300, 59, "verify", None, 0, THREAD),
            ],
        )
        _table(export, "TARGET_INFO_GPU", "id, cuDevice, name", [(0, 0, "NVIDIA H200")])
        _table(
            export,
            "TARGET_INFO_GPU_METRICS",
            "typeId, sourceId, typeName, metricId, metricName",
            [(0, 0, "", 1, "SMs Active [Throughput %]")],
        )
        _table(
            export,
            "GPU_METRICS",
            "rawTimestamp, timestamp, typeId, metricId, value",
            [(0, time, 0, 1, 40) for time in range(0, 1000, 100)],
        )
    export.close()
    return path


def record_ncu(path: Path) -> Path:
    """A raw page of two launches in two phases."""
    nvtx = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    header = ["ID", "Process ID", "Process Name", "Host Name", nvtx, "Kernel Name", "Context"]
    header += ["Stream", "Block Size", "Grid Size", "Device", "CC", "gpu__time_duration.sum"]
    rows = [header, [*[""] * 12, "ns"]]
    for number, (phase, kernel, ns) in enumerate((("draft", "gather", 60), ("verify", "gemm", 90))):
        ranges = f'{TID}  ""<default domain>:step:none"" ""<default domain>:{phase}:none:none""'
        places = ["1", "7", "(128, 1, 1)", "(1, 1, 1)", "0", "9.0"]
        rows.append([str(number), str(PID), "python", "host", ranges, kernel, *places, str(ns)])
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    path.write_text("\n".join(["==PROF== Connected to process 4242", *lines]) + "\n")
    return path


def _table(export: sqlite3.Connection, name: str, columns: str, rows: list[tuple]) -> None:
    quoted = ", ".join(f'"{column}"' for column in columns.split(", "))
    export.execute(f"CREATE TABLE {name} ({quoted})")
    export.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
