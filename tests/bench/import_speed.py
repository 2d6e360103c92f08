"""Time and memory of reading a large Nsight Systems export: `python -m tests.bench.import_speed`.

Makes an .sqlite with 100,000 kernels and 1,000,000 rows of GPU metrics as the tool writes them, and
reads it in a new process each time, from its first import to the finished summary. `--file` reads
a given profile instead; where nsys is on the PATH, `nsys stats` on the same file is timed beside.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "profiles" / "nsight"))
from nsight_fixtures import KERNEL_NAMES, Export

READ = """
import json, resource, sys, time
from pathlib import Path
began = time.perf_counter()
from profiles.nsight import read_capture
summary = read_capture(Path(sys.argv[1])).summary
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
seconds = time.perf_counter() - began
print(json.dumps([seconds, peak, summary.kernels, summary.gpu_metric_rows, summary.state]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--kernels", type=int, default=100_000)
    parser.add_argument("--metric-rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or large_export(Path(folder) / "large.sqlite", options)
        print(f"{path.stat().st_size / 1e6:.0f} MB")
        read = [once(path) for _ in range(options.repeats)]
        seconds, peak = (statistics.median(row[i] for row in read) for i in (0, 1))
        print(
            f"{read[0][2]:,} kernels, {read[0][3]:,} metric rows, {read[0][4]}: "
            f"median {seconds:.2f} s (all {', '.join(f'{row[0]:.2f}' for row in read)}), "
            f"peak {peak / 1e6:.0f} MB"
        )
        if nsys := shutil.which("nsys"):
            began = time.perf_counter()
            subprocess.run([nsys, "stats", str(path)], check=True, capture_output=True)
            print(f"nsys stats: {time.perf_counter() - began:.2f} s")


def large_export(path: Path, options: argparse.Namespace) -> Path:
    """Kernels back to back, and three metrics a sample."""
    rows = [(i, i + 1, 0, i % len(KERNEL_NAMES)) for i in range(options.kernels)]
    export = Export(path).kernels(rows=rows).copies().api_calls().ranges()
    export.gpu_metrics(options.metric_rows // 3)
    return export.gpus([(0, 0, "NVIDIA H200")]).done()


def once(path: Path) -> list[float]:
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    values: list[float] = json.loads(done.stdout)
    return values


if __name__ == "__main__":
    main()
