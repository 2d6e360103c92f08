"""A real trial under every profiler of this host: `python -m tests.bench.gpu_profile --out DIR`.

Runs the same short trial under nsys in both CUDA graph modes, under ncu and under PyTorch's
profiler, imports each capture, and prints phases, launches per step, top kernels, and SM activity
by Nsight against the sampler's GPM over the same windows. A last run without any profiler shows
what GPM says when Nsight is not there. A tool that is missing is named and passed over.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from profiles.errors import ProfilesError
from profiles.nsight import read_capture
from profiles.nsight.local_tool import run_tool
from profiles.records import TrialConfig, WorkloadSpec
from profiles.store import RunFolder
from profiles.telemetry.parts import read, read_reasons
from profiles.trial_capture import TrialCapture
from tests.bench.capture_tables import text_of
from tests.bench.options import add_served, add_tree, config_of, workload_of
from tuner.capture.base import Profiler
from tuner.capture.capture import capture_trial
from tuner.capture.ncu import Ncu
from tuner.capture.nsys import Nsys
from tuner.capture.torch_profiler import TorchProfiler
from tuner.capture.window import Window
from tuner.errors import TunerError
from tuner.runs import create_run
from tuner.trial import run_trial

WAYS = ("nsys-graph", "nsys-node", "ncu", "torch", "none")
_LARGEST_KEPT = 40 << 20  # bytes of a gzipped report


def main() -> None:
    options = parsed()
    options.out.mkdir(parents=True, exist_ok=True)
    config = config_of(options, options.beam_width, options.draft_len)
    spec = workload_of(options)
    print(f"{config.describe()}, {options.steps} steps to record")
    with tempfile.TemporaryDirectory() as runs:
        os.environ["TUNER_RUNS_DIR"] = runs
        for way in options.only.split(","):
            run = create_run("run", {"workload": spec.model_dump(mode="json")}, 0, "bench")
            begun = time.perf_counter()
            try:
                text = one(way, run, config, spec, options)
            except (TunerError, ProfilesError) as error:
                text = f"## {way}: not captured, {error}\n"
            text += f"({time.perf_counter() - begun:.1f} s for this run)\n"
            print(text, flush=True)
            keep(options.out / way, run, text)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(WAYS), help=f"of {', '.join(WAYS)}")
    add_served(parser, batch_size=8, requests=64, max_new_tokens=256)
    add_tree(parser)
    parser.add_argument("--steps", type=int, default=600, help="under nsys; half by graph node")
    return parser.parse_args()


def one(
    way: str, run: RunFolder, config: TrialConfig, spec: WorkloadSpec, options: argparse.Namespace
) -> str:
    """Run one way and say what it saw."""
    if way == "none":
        return without_profiler(run, config, spec, options.steps)
    profilers: dict[str, Profiler] = {
        "nsys-graph": Nsys("graph"),
        "nsys-node": Nsys("node"),
        "ncu": Ncu(),
        "torch": TorchProfiler(),
    }
    profiler = profilers[way]
    long = {"nsys-graph": options.steps, "nsys-node": options.steps // 2}
    steps = long.get(way, min(options.steps, profiler.steps))
    result, capture = capture_trial(run, 0, config, profiler, steps)
    if capture is None:
        return f"## {way}: the trial failed, {result.error}\n"
    return text_of(way, capture) + import_cost(run, capture)


def import_cost(run: RunFolder, capture: TrialCapture) -> str:
    """How long reading the report takes us, and `nsys stats` for one of its tables."""
    report = run.trial(0).path / capture.report
    begun = time.perf_counter()
    ours = read_capture(report).summary
    lines = [
        f"{ours.headline}; report of {report.stat().st_size:,} bytes read in "
        f"{time.perf_counter() - begun:.1f} s"
    ]
    lines += [f"{note.level}: {note.text}" for note in ours.notes]
    if report.suffix == ".nsys-rep":
        begun = time.perf_counter()
        arguments = ["stats", "--report", "cuda_gpu_kern_sum", "--format", "csv", str(report)]
        printed = report.with_name("stats.csv")
        printed.write_bytes(run_tool("nsys", arguments, report, "Install Nsight Systems."))
        theirs = read_capture(printed).summary
        lines.append(
            f"nsys stats cuda_gpu_kern_sum in {time.perf_counter() - begun:.1f} s: "
            f"{theirs.kernels} kernels, {theirs.kernel_time_ns} ns; ours {ours.kernels}, "
            f"{ours.kernel_time_ns}"
        )
    return "\n".join(lines) + "\n"


def without_profiler(run: RunFolder, config: TrialConfig, spec: WorkloadSpec, steps: int) -> str:
    """What the sampler sees of the same steps when no profiler is there."""
    trial, window = run.trial(0), Window(nullcontext, steps)
    result = run_trial(trial, config, spec, measuring=window.measure)
    seen = window.captured
    if seen is None:
        return f"## none: the trial failed, {result.error}\n"
    samples = read(trial.telemetry_dir)
    inside = samples[samples["t_s"].between(seen.start_s + 0.2, seen.end_s)]
    lines = [f"## none: {seen.steps} steps, {seen.end_s - seen.start_s:.2f} s"]
    for column in ("sm_active_pct", "tensor_active_pct", "dram_active_pct"):
        values = inside[column].dropna()
        mean = f"{values.mean():.2f}" if len(values) else "n/a"
        lines.append(f"{column}: GPM {mean} over {len(values)} samples")
    for source, missing in read_reasons(trial.telemetry_dir).columns.items():
        lines += [f"{source} {name}: {why.reason}" for name, why in missing.items()]
    return "\n".join(lines) + "\n"


def keep(folder: Path, run: RunFolder, text: str) -> None:
    """Copy what is small, gzipped, and the report unless it is large."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.txt").write_text(text)
    trial = run.trial(0).path
    for path in (trial / "capture.json", trial / "worker.log", trial / "result.json"):
        if path.exists():
            (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    for path in (run.path / "imports").glob("*/summary.json"):
        (folder / "summary.json").write_text(json.dumps(json.loads(path.read_text()), indent=1))
    for path in (trial / "capture").glob("*"):
        packed = path.read_bytes()
        packed = packed if path.suffix == ".gz" else gzip.compress(packed)
        if len(packed) <= _LARGEST_KEPT:
            (folder / f"{path.name.removesuffix('.gz')}.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
