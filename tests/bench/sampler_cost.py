"""What sampling costs: `python -m tests.bench.sampler_cost [--help]`.

The same requests are served with the sampler off, at 10 Hz and at 100 Hz, in rounds whose order
turns, so that drift weighs on all three. Prints the median over rounds of the paired ratios of
tokens/s to "off", and a bootstrap interval of that median.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from profiles.records import RequestRecord
from profiles.telemetry.sampler import Sampler
from tests.bench.options import add_served, add_tree, config_of, workload_of
from tuner.engines.base import Request
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.trial import load_requests

RATES_HZ = (None, 10.0, 100.0)


def main() -> None:
    options = parsed()
    config = config_of(options, options.beam_width, options.draft_len)
    spec = workload_of(options)
    requests = load_requests(config, spec).batch.requests
    engine = RedrafterEngine()
    longest = max(len(r.prompt_token_ids) + r.max_new_tokens for r in requests)
    prepared = engine.prepare(config, longest)
    gpus = engine.support(config.device).gpu_uuids
    tokens_per_s(engine, requests)
    speeds: dict[float | None, list[float]] = {rate: [] for rate in RATES_HZ}
    for index in range(options.rounds):
        turn = index % len(RATES_HZ)
        for rate in RATES_HZ[turn:] + RATES_HZ[:turn]:
            with sampling(rate, gpus):
                speeds[rate].append(tokens_per_s(engine, requests))
    print(f"{config.describe()}, {prepared.device}, {options.rounds} rounds of {len(requests)}")
    for rate, values in speeds.items():
        print(line(rate, values, speeds[None]))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_served(parser, batch_size=8, requests=16, max_new_tokens=128)
    add_tree(parser)
    parser.add_argument("--rounds", type=int, default=15)
    return parser.parse_args()


@contextmanager
def sampling(rate_hz: float | None, gpus: tuple[str, ...]) -> Iterator[None]:
    """Sample while the block runs, from the first row on; not at all without a rate."""
    if rate_hz is None:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        with Sampler(Path(folder), gpus=gpus, hz=rate_hz) as sampler:
            if not sampler.wait_until_ready():
                raise SystemExit(f"the sampler did not start: {sampler.log_path.read_text()}")
            yield
        if sampler.failure:
            raise SystemExit(sampler.failure)


def tokens_per_s(engine: RedrafterEngine, requests: Sequence[Request]) -> float:
    """Output tokens per second, first arrival to last emission."""
    answers = [r for r in engine.serve(requests) if isinstance(r, RequestRecord)]
    seconds = max(r.emission_s[-1] for r in answers) - min(r.arrival_s for r in answers)
    return sum(r.output_tokens for r in answers) / seconds


def line(rate_hz: float | None, speeds: list[float], off: list[float]) -> str:
    """Median speed, and the median paired ratio with its interval."""
    ratios = np.array(speeds) / np.array(off)
    generator = np.random.default_rng(0)
    draws = np.median(generator.choice(ratios, (10_000, len(ratios))), axis=1)
    low, high = np.percentile(draws, (2.5, 97.5))
    name = "off" if rate_hz is None else f"{rate_hz:g} Hz"
    return (
        f"{name:<8} {statistics.median(speeds):>9.1f} tokens/s  ratio to off "
        f"{np.median(ratios):.4f} (95 % {low:.4f} to {high:.4f})"
    )


if __name__ == "__main__":
    main()
