"""Acceptance by eval-drafter against live runs: `python -m tests.bench.eval_against_live [--help]`.

Both take the same built-in prompts; steps and committed tokens of every cell and category are
compared. They are equal in fp32; in half precision a near-tie may fall either way.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from profiles.records import StepRecord, TrialConfig
from tuner.commands.prompts import read_prompts
from tuner.engines.base import Request
from tuner.engines.redrafter.engine import SHIPPED_DRAFTER, RedrafterEngine, pick_device
from tuner.engines.redrafter.training.evaluate import EvalReport, evaluate_drafter
from tuner.models import BUILTIN_MODEL, resolve_model
from tuner.workloads import HFTokenizer

CELLS = ((1, 3), (4, 4), (8, 5))
Prompts = dict[str, list[tuple[int, ...]]]
Counts = dict[str, tuple[int, int]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--drafter", default=str(SHIPPED_DRAFTER), help="of any kind")
    options = parser.parse_args()
    device = str(pick_device(options.device))
    tokens = options.max_new_tokens
    prompts = read_prompts(BUILTIN_MODEL, ["builtin"], options.requests, tokens)
    began = time.perf_counter()
    report = evaluate_drafter(
        resolve_model(BUILTIN_MODEL), options.drafter, prompts, CELLS, tokens, device,
        options.precision,
    )  # fmt: skip
    print(f"eval: {time.perf_counter() - began:.1f} s, {report.positions} positions, {device}")
    print("W  D  eval tokens / steps  live tokens / steps  categories equal")
    engine = RedrafterEngine()
    for cell in CELLS:
        counted = evaluated_counts(report, cell)
        config = TrialConfig(
            drafter=options.drafter,
            quantization=options.precision,
            device=device,
            beam_width=cell[0],
            draft_len=cell[1],
            batch_size=options.batch_size,
        )
        live = live_counts(engine, prompts, config, tokens)
        equal = sum(counted[name] == live[name] for name in live)
        sums = [tuple(map(sum, zip(*counts.values(), strict=True))) for counts in (counted, live)]
        shown = "  ".join(f"{t} / {s} = {t / s:.4f}" for s, t in sums)
        print(f"{cell[0]:<3}{cell[1]:<3}{shown}  {equal} of {len(live)}", flush=True)
    engine.close()


def evaluated_counts(report: EvalReport, cell: tuple[int, int]) -> Counts:
    """Steps and committed tokens of every category in one cell of an evaluation."""
    return {
        c.category: (c.steps, c.committed_tokens)
        for c in report.everything
        if (c.beam_width, c.draft_len) == cell and c.category != "all"
    }


def live_counts(
    engine: RedrafterEngine, prompts: Prompts, config: TrialConfig, max_new_tokens: int
) -> Counts:
    """Steps and committed tokens of every category, from the engine's own step records."""
    stops = HFTokenizer(resolve_model(config.model)).stop_token_ids
    requests = [
        Request(f"{name}/{number}", prompt, max_new_tokens, stop_token_ids=stops, category=name)
        for name, group in prompts.items()
        for number, prompt in enumerate(group)
    ]
    engine.prepare(config, max_new_tokens + max(len(r.prompt_token_ids) for r in requests))
    steps: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for record in engine.serve(requests):
        if isinstance(record, StepRecord):
            for name, committed in zip(record.request_ids, record.committed, strict=True):
                steps[name.split("/")[0]] += 1
                tokens[name.split("/")[0]] += committed
    return {name: (steps[name], tokens[name]) for name in prompts}


if __name__ == "__main__":
    main()
