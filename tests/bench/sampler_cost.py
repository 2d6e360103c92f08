"""What sampling costs: `python -m tests.bench.sampler_cost [--help]`.

Serves requests for as long as it is told, while a sampler at 10 Hz, then at 100 Hz, is stopped and
let go on in turn. Every window in which it stands still is set against the two windows beside it,
so that drift, which is larger than the cost, cancels. Printed is tokens/s with the sampler against
tokens/s without, by the mean step of a window: the median ratio and its bootstrap interval.
Beside it stands the CPU time that the sampler took, which the noise of a host hardly touches.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
import psutil

from profiles.records import StepRecord
from profiles.telemetry.sampler import Sampler
from tests.bench.options import add_served, add_tree, config_of, workload_of
from tuner.engines.base import Request
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.trial import load_requests

RATES_HZ = (10.0, 100.0)
CROSSING = 2  # steps that may have begun before the sampler was stopped or let go on


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of steps with the sampler running or stopped."""

    sampled: bool
    step_ms: float
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_served(parser, batch_size=8, requests=64, max_new_tokens=256)
    add_tree(parser)
    parser.add_argument("--seconds", type=float, default=120, help="for each rate")
    parser.add_argument("--window", type=float, default=1.0, help="seconds")
    options = parser.parse_args()
    config = config_of(options, options.beam_width, options.draft_len)
    requests = load_requests(config, workload_of(options)).batch.requests
    engine = RedrafterEngine()
    longest = max(len(r.prompt_token_ids) + r.max_new_tokens for r in requests)
    prepared = engine.prepare(config, longest)
    gpus = engine.support(config.device).gpu_uuids
    print(f"{config.describe()}, {prepared.device}, windows of {options.window:g} s", flush=True)
    for rate in RATES_HZ:
        with tempfile.TemporaryDirectory() as folder:
            with Sampler(Path(folder), gpus=gpus, hz=rate) as sampler:
                if not sampler.wait_until_ready():
                    raise SystemExit(f"the sampler did not start: {sampler.log_path.read_text()}")
                before_s = cpu_s(sampler)
                served = list(windows(engine, requests, sampler, options))
                used_s = cpu_s(sampler) - before_s
            if sampler.failure:
                raise SystemExit(sampler.failure)
        per_s = 1e3 * used_s / sum(window.seconds for window in served if window.sampled)
        print(f"{line(rate, served)}; {per_s:.2f} ms of CPU a second", flush=True)


def windows(
    engine: RedrafterEngine,
    requests: Sequence[Request],
    sampler: Sampler,
    options: argparse.Namespace,
) -> Iterator[Window]:
    """Serve, and give every window as it ends; steps that read prompts are left out."""
    process, sampled, steps = psutil.Process(sampler.pid), True, []
    began = turned = time.perf_counter()
    try:
        for record in (r for again in repeat(requests) for r in engine.serve(again)):
            now = time.perf_counter()
            if isinstance(record, StepRecord):
                steps.append(0.0 if record.context_requests else record.total_ms)
            if now - turned < options.window:
                continue
            kept = [ms for ms in steps[CROSSING:] if ms]
            if kept:
                yield Window(sampled, statistics.fmean(kept), now - turned)
            if now - began > options.seconds:
                return
            process.suspend() if sampled else process.resume()
            sampled, steps, turned = not sampled, [], now
    finally:
        process.resume()


def cpu_s(sampler: Sampler) -> float:
    """CPU seconds of the sampler so far."""
    times = psutil.Process(sampler.pid).cpu_times()
    return times.user + times.system


def line(rate_hz: float, served: list[Window]) -> str:
    """Median paired ratio of tokens/s with the sampler to tokens/s without, and its interval."""
    ratios = np.array(
        [
            window.step_ms / statistics.fmean((before.step_ms, after.step_ms))
            for before, window, after in zip(served, served[1:], served[2:], strict=False)
            if not window.sampled
        ]
    )
    generator = np.random.default_rng(0)
    draws = np.median(generator.choice(ratios, (10_000, len(ratios))), axis=1)
    low, high = np.percentile(draws, (2.5, 97.5))
    step_ms = statistics.median(window.step_ms for window in served if not window.sampled)
    return (
        f"{rate_hz:g} Hz: {len(ratios)} windows of {step_ms:.2f} ms a step; tokens/s with the "
        f"sampler {np.median(ratios):.4f} of without (95 % {low:.4f} to {high:.4f})"
    )


if __name__ == "__main__":
    main()
