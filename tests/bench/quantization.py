"""What a quantized precision costs in quality and saves in memory.

`python -m tests.bench.quantization [--help]` reads a fixed text, prompts of a workload that were
not used for calibration, with the model in bf16 (fp32 on the CPU) and in every precision, and
prints: KL divergence of the next-token distributions from bf16's, perplexity, how often the
likeliest token is the same, acceptance length with the shipped drafter at temperature 0, and the
bytes of the weights. `--kv-cache-dtype fp8` lets all but the first keep their keys and values so;
the first precision named again shows that alone. On the CPU the reference products are used, which
are slow and are not offered by the engine: take a small budget. With `--grown` the model is the
135M grown to 8B shape.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from profiles.records import StepRecord, TrialConfig, WorkloadSpec
from tests.bench.grow_8b import LABEL, LLAMA_3_8B, grow_llama, read
from tests.bench.grow_drafter import grow_drafter
from tuner.engines.base import Request
from tuner.engines.redrafter.attention import prompt_attention
from tuner.engines.redrafter.checkpoint import load_drafter, load_llama, save_drafter
from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.engine import SHIPPED_DRAFTER, RedrafterEngine
from tuner.engines.redrafter.kv_cache import KVCache, blocks_for, kept_dtype
from tuner.engines.redrafter.linear import apply_compute, compute_path, module_bytes
from tuner.engines.redrafter.llama import Attend, Llama
from tuner.engines.redrafter.quant.kernels import KERNELS, describe_kernels
from tuner.engines.redrafter.quant.load import CALIBRATION_WORKLOAD, calibration_prompts
from tuner.engines.redrafter.quant.quantize import quantize
from tuner.engines.redrafter.quant.support import QUANTIZED
from tuner.models import resolve_model
from tuner.workloads import HFTokenizer, build_requests, load_workload

LONGEST_PROMPT = 512


@dataclass(slots=True)
class Against:
    """Sums over the tokens of the text, of a model beside the exact one."""

    tokens: int = 0
    divergence: float = 0.0
    negative_log: float = 0.0
    same: int = 0

    def add(self, logits: Tensor, exact: Tensor, text: list[int]) -> None:
        ours, theirs = logits[:-1].log_softmax(-1), exact[:-1].log_softmax(-1)
        following = torch.tensor(text[1:], device=logits.device).unsqueeze(1)
        self.tokens += len(text) - 1
        self.divergence += float((theirs.exp() * (theirs - ours)).sum())
        self.negative_log -= float(ours.gather(1, following).sum())
        self.same += int((ours.argmax(-1) == theirs.argmax(-1)).sum())


class GivenModel(RedrafterEngine):
    """The engine on a model that is made already."""

    def __init__(self, model: Llama) -> None:
        super().__init__()
        self._given = model

    def _load_model(self, name, compute):
        self._model = self._given
        return self._given


class Bench:
    """The exact model's logits, and what every precision makes of the same text."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device, self.kernel = torch.device(options.device), options.kernel
        self.grown, self.requests = options.grown, options.requests
        self.max_new_tokens, self.folder = options.max_new_tokens, resolve_model(options.model)
        self.drafter, self.kv_cache_dtype = options.drafter, "auto"
        self.base = compute_path("fp32" if options.device == "cpu" else "bf16", self.device)
        self.calibration = calibration_prompts(self.folder, options.calibration)
        self.text = list(self._texts(options.workload, options.tokens))
        self.exact: list[Tensor] = []

    def _texts(self, workload: str, tokens: int) -> Iterator[list[int]]:
        """Rendered prompts that calibration did not read, `tokens` in all."""
        source = load_workload(workload)
        spec = WorkloadSpec(requests=len(source.prompts), max_new_tokens=self.max_new_tokens)
        tokenizer = HFTokenizer(self.folder)
        all_requests = build_requests(source, tokenizer, spec, LONGEST_PROMPT).requests
        seen = set(self.calibration)
        self.held_out = [r for r in all_requests if r.prompt_token_ids not in seen]
        for request in self.held_out:
            if tokens > 0:
                yield list(request.prompt_token_ids)
            tokens -= len(request.prompt_token_ids)

    def plain(self) -> Llama:
        model = load_llama(self.folder)
        if self.grown:
            return grow_llama(model, LLAMA_3_8B, self.device, self.base.weight_dtype)
        return apply_compute(model, self.base)

    def model(self, precision: str) -> Llama:
        if precision not in QUANTIZED:
            return self.plain()
        compute = replace(self.base, precision=precision)
        return quantize(self.plain(), compute, self.calibration, kernel=self.kernel)

    def measure(self, model: Llama) -> Against:
        against = Against()
        first = not self.exact
        for index, text in enumerate(self.text):
            logits = read(model, text, self._over_cache(model, text))
            if first:
                self.exact.append(logits.cpu())
            against.add(logits, self.exact[index].to(logits.device), text)
        return against

    def _over_cache(self, model: Llama, text: list[int]) -> Attend:
        """Attention to keys and values as they are kept."""
        dtype = model.norm.weight.dtype
        kept = kept_dtype(self.kv_cache_dtype, self.device, dtype)
        blocks = 1 + blocks_for(len(text))
        cache = KVCache(model.config, blocks, self.device, dtype, kept)
        slots = cache.slots_of(list(range(1, blocks)))
        before = torch.zeros(1, device=self.device, dtype=torch.long)
        return prompt_attention(cache, slots[: len(text)], slots.unsqueeze(0), before, whole=True)

    def acceptance_length(self, model: Llama, drafter: Path) -> float | None:
        """Committed tokens a step over the held-out prompts, W=4, D=4."""
        requests: list[Request] = self.held_out[: self.requests]
        if not requests:
            return None
        engine = GivenModel(model)
        config = TrialConfig(
            model=str(self.folder),
            drafter=str(drafter),
            device=self.device.type,
            quantization=self.base.precision,
            kv_cache_dtype=self.kv_cache_dtype,
            batch_size=min(8, len(requests)),
        )
        engine.prepare(config, LONGEST_PROMPT + self.max_new_tokens)
        steps = [r for r in engine.serve(requests) if isinstance(r, StepRecord)]
        engine.close()
        committed = [count for step in steps for count in step.committed]
        return sum(committed) / len(committed)

    @contextmanager
    def fitting_drafter(self) -> Iterator[Path]:
        """The drafter's folder, grown with the model where that is grown."""
        folder = SHIPPED_DRAFTER if self.drafter is None else Path(self.drafter)
        if not self.grown:
            yield folder
            return
        small = LlamaConfig.from_dir(self.folder)
        base = replace(small, hidden_size=LLAMA_3_8B.hidden_size, vocab_size=LLAMA_3_8B.vocab_size)
        drafter = grow_drafter(load_drafter(folder, small), base, self.device, torch.bfloat16)
        with tempfile.TemporaryDirectory() as grown:
            save_drafter(drafter, Path(grown))
            yield Path(grown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--drafter", help="folder; left out: the shipped one")
    parser.add_argument("--precisions", default="fp8,int8_sq,int4_awq")
    parser.add_argument("--kv-cache-dtype", default="auto", choices=("auto", "fp8"))
    parser.add_argument("--kernel", default="auto", choices=KERNELS)
    parser.add_argument("--workload", default="builtin", help="whose prompts are the text")
    parser.add_argument("--calibration", default=CALIBRATION_WORKLOAD)
    parser.add_argument("--tokens", type=int, default=4096, help="of text, whole prompts")
    parser.add_argument("--requests", type=int, default=24, help="served; 0: none")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--grown", action="store_true", help=LABEL)
    options = parser.parse_args()
    bench = Bench(options)
    name = LABEL if options.grown else options.model
    tokens = sum(len(text) - 1 for text in bench.text)
    print(f"{name}, {options.device}, text of {tokens} tokens, {options.requests} requests")
    print(
        "| precision | KL | perplexity | same token | acceptance | weights MB | saved | product |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    whole = 0
    with bench.fitting_drafter() as drafter:
        for precision in (bench.base.precision, *options.precisions.split(",")):
            began = time.perf_counter()
            model = bench.model(precision)
            seconds = time.perf_counter() - began
            against = bench.measure(model)
            weights = module_bytes(model)
            whole = whole or weights
            rate = bench.acceptance_length(model, drafter)
            bench.kv_cache_dtype = options.kv_cache_dtype  # the first is the exact one
            perplexity = torch.tensor(against.negative_log / against.tokens).exp()
            print(
                f"| {precision} | {against.divergence / against.tokens:.4f} "
                f"| {float(perplexity):.3f} | {against.same / against.tokens:.1%} "
                f"| {'not served' if rate is None else f'{rate:.3f}'} | {weights / 1e6:,.0f} "
                f"| {1 - weights / whole:.0%} "
                f"| {describe_kernels(model) or 'torch linear'}, made in {seconds:.0f} s |",
                flush=True,
            )
            del model


if __name__ == "__main__":
    main()
