"""Greedy text against transformers' generate: `python -m tests.bench.text_equality [--help]`.

Serves the built-in prompts with every setting and compares token for token. Where a text differs,
the first difference is judged by the margin between the two best fp32 logits there: in half
precision a near-tie may fall either way.
"""

from __future__ import annotations

import argparse
import functools
import time

import torch

from profiles.records import RequestRecord, StepRecord, TrialConfig, WorkloadSpec
from tests.bench.options import trees
from tuner.engines.base import Request
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.models import resolve_model
from tuner.workloads import HFTokenizer, build_requests, load_workload

SETTINGS = trees("1x0,1x1,1x4,2x3,4x4,8x5,16x5")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch-sizes", default="1,8")
    parser.add_argument("--settings", type=trees, default=SETTINGS, help="WxD, by commas")
    parser.add_argument(
        "--forced",
        action="store_true",
        help="ask transformers for its choice after every prefix of our text, in one forward",
    )
    options = parser.parse_args()
    folder = resolve_model("smollm2-135m")
    spec = WorkloadSpec(requests=options.requests, max_new_tokens=options.max_new_tokens)
    requests = build_requests(
        load_workload("builtin"), HFTokenizer(folder), spec, max_prompt_tokens=400
    ).requests
    engine = RedrafterEngine()
    device = engine.support(options.device).device
    reference = Reference(folder, device, options.precision, options.forced)
    print(f"{len(requests)} prompts x {spec.max_new_tokens} tokens, {options.precision}, {device}")
    print("W  D  batch  equal  acceptance_length  seconds")
    for batch in map(int, options.batch_sizes.split(",")):
        for width, length in options.settings:
            config = TrialConfig(
                quantization=options.precision,
                device=options.device,
                beam_width=width,
                draft_len=length,
                batch_size=batch,
            )
            engine.prepare(config, 400 + spec.max_new_tokens)
            began = time.perf_counter()
            records = list(engine.serve(requests))
            seconds = time.perf_counter() - began
            answers = {r.id: r.output_token_ids for r in records if isinstance(r, RequestRecord)}
            steps = [r for r in records if isinstance(r, StepRecord)]
            committed = [c for s in steps for c in s.committed]
            rate = sum(committed) / len(committed)
            differences = {
                r.id: (r, position)
                for r in requests
                if (position := reference.first_difference(r, answers[r.id])) is not None
            }
            score = f"{len(requests) - len(differences)}/{len(requests)}"
            print(
                f"{width:<2} {length}  {batch:<5}  {score}  {rate:.3f}  {seconds:.0f}", flush=True
            )
            for request, position in differences.values():
                margin = reference.margin(request, answers[request.id][:position])
                print(f"    {request.id}: token {position}, fp32 margin there {margin}")


class Reference:
    """transformers' own greedy decoding, and the margin of a choice."""

    def __init__(self, folder, device: str, precision: str, forced: bool) -> None:
        from transformers import AutoModelForCausalLM

        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
        load = AutoModelForCausalLM.from_pretrained
        self.model = load(folder, dtype=dtype).to(device)
        self.exact = load(folder, dtype=torch.float32).to(device)
        self.device, self.forced = device, forced
        self.texts: dict[str, list[int]] = {}

    @torch.inference_mode()
    def first_difference(self, request: Request, answer: list[int]) -> int | None:
        """Position of the first token that transformers would not have written, or None."""
        theirs = self._follow(request, tuple(answer)) if self.forced else self._generate(request)
        if answer == theirs:
            return None
        pairs = enumerate(zip(answer, theirs, strict=False))
        shorter = min(len(answer), len(theirs))
        return next((i for i, (a, b) in pairs if a != b), shorter)

    @functools.cache
    def _follow(self, request: Request, answer: tuple[int, ...]) -> list[int]:
        """What transformers chooses after every prefix of `answer`, in one forward."""
        ids = torch.tensor([[*request.prompt_token_ids, *answer]], device=self.device)
        start = len(request.prompt_token_ids) - 1
        return self.model(ids).logits[0, start:-1].argmax(-1).tolist()

    def _generate(self, request: Request) -> list[int]:
        if request.id not in self.texts:
            ids = torch.tensor([request.prompt_token_ids], device=self.device)
            out = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=request.max_new_tokens,
                do_sample=False,
            )
            self.texts[request.id] = out[0, ids.shape[1] :].tolist()
        return self.texts[request.id]

    @torch.inference_mode()
    def margin(self, request: Request, prefix: list[int]) -> float:
        """Distance of the two best fp32 logits after `prefix`."""
        ids = torch.tensor([[*request.prompt_token_ids, *prefix]], device=self.device)
        best, second = self.exact(ids).logits[0, -1].topk(2).values.tolist()
        return round(best - second, 4)


if __name__ == "__main__":
    main()
