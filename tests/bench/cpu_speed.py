"""Speed on this host's CPU, batch 1: `python -m tests.bench.cpu_speed [--help]`.

For every prompt, in alternating order: transformers' generate, our plain decoding, and ReDrafter.
Times are of whole answers, first token to last, from the second token on (prefill left out).
Prints medians over prompts of the paired ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from profiles.records import RequestRecord, TrialConfig, WorkloadSpec
from tuner.engines.base import Request
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.models import resolve_model
from tuner.workloads import HFTokenizer, build_requests, load_workload


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--grid", default="1x3,1x4,2x3,4x4")
    parser.add_argument("--no-transformers", action="store_true")
    options = parser.parse_args()
    folder = resolve_model("smollm2-135m")
    spec = WorkloadSpec(requests=options.requests, max_new_tokens=options.max_new_tokens)
    requests = build_requests(
        load_workload("builtin"), HFTokenizer(folder), spec, max_prompt_tokens=400
    ).requests
    sides = {"plain": Ours(options.precision, 1, 0)}
    for cell in options.grid.split(","):
        width, length = map(int, cell.split("x"))
        sides[cell] = Ours(options.precision, width, length)
    if not options.no_transformers:
        sides["transformers"] = Theirs(folder, options.precision)
    for side in sides.values():
        side.tokens_per_s(requests[0])
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for index, request in enumerate(requests):
        names = list(sides) if index % 2 == 0 else list(sides)[::-1]
        for name in names:
            speeds[name].append(sides[name].tokens_per_s(request))
    print(
        f"{len(requests)} prompts x {spec.max_new_tokens} tokens, {options.precision}, "
        f"{torch.get_num_threads()} threads"
    )
    print("side          median tok/s  median ratio to plain  quartiles")
    for name, values in speeds.items():
        ratios = [v / p for v, p in zip(values, speeds["plain"], strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        print(
            f"{name:<13} {statistics.median(values):<13.1f} {statistics.median(ratios):<22.3f} "
            f"{low:.2f} to {high:.2f}"
        )


class Ours:
    """One config of the engine; all share the loaded weights."""

    engine = RedrafterEngine()

    def __init__(self, precision: str, beam_width: int, draft_len: int) -> None:
        self.config = TrialConfig(
            device="cpu", quantization=precision, beam_width=beam_width, draft_len=draft_len
        )

    def tokens_per_s(self, request: Request) -> float:
        self.engine.prepare(self.config, 400 + request.max_new_tokens)
        [answer] = [r for r in self.engine.serve([request]) if isinstance(r, RequestRecord)]
        return (answer.output_tokens - 1) / (answer.emission_s[-1] - answer.emission_s[0])


class Theirs:
    """transformers' generate, timed from the first new token by a streamer."""

    def __init__(self, folder, precision: str) -> None:
        from transformers import AutoModelForCausalLM

        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)

    @torch.inference_mode()
    def tokens_per_s(self, request: Request) -> float:
        ids = torch.tensor([request.prompt_token_ids])
        times = Times()
        self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=request.max_new_tokens,
            do_sample=False,
            streamer=times,
        )
        return (len(times.at) - 2) / (times.at[-1] - times.at[1])


class Times:
    """A streamer that notes when each token came; the first call brings the prompt."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.at.append(time.perf_counter())

    def end(self) -> None:
        pass


if __name__ == "__main__":
    main()
