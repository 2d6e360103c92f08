"""How near the engine comes to what the device can do: `python -m tests.bench.gpu_speed [--help]`.

Prints the measured limits; plain decoding as a share of the time that its weight bytes need at the
read limit; what verifying a tree of 64 nodes costs against a plain step; what drafting costs; the
speed-up end to end; and throughput by batch with and without speculation, with the memory that was
predicted beside what was used. Every time is the median over generation steps. `--shape 8b` grows
SmolLM2-135M and its drafter to the shape of Llama-3-8B: the same text at the cost of an 8B.
`--random` times random weights of that shape beside it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from profiles.records import MemorySplit, StepRecord, TrialConfig, WorkloadSpec
from tests.bench.grow_8b import LABEL, LLAMA_3_8B, grow_llama, scramble
from tests.bench.grow_drafter import grow_drafter
from tests.bench.options import trees
from tests.bench.quantization import GivenModel
from tuner.engines.base import Request
from tuner.engines.redrafter.checkpoint import load_drafter, load_llama, save_drafter
from tuner.engines.redrafter.engine import SHIPPED_DRAFTER
from tuner.engines.redrafter.linear import Compute, apply_compute, compute_path, module_bytes
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.memory import predict_memory
from tuner.engines.redrafter.quant.load import calibration_prompts
from tuner.engines.redrafter.quant.quantize import quantize
from tuner.errors import TunerError
from tuner.limits import device_limits
from tuner.models import resolve_model
from tuner.workloads import HFTokenizer, build_requests, load_workload

MODEL = "smollm2-135m"
TREE_OF_64 = (21, 3)  # beam width and draft length: 1 + 21 * 3 nodes when no prefix is shared


@dataclass(frozen=True, slots=True)
class Steps:
    """What serving some requests took; times are medians over generation steps without prompts."""

    step_ms: float
    draft_ms: float  # with the tree, acceptance and the host
    verify_ms: float
    tokens_per_s: float
    acceptance_length: float
    prefill_tokens_per_s: float


class Subject:
    """A model in one precision with its drafter, and the requests that it serves."""

    def __init__(self, options: argparse.Namespace, precision: str, drafter: Path) -> None:
        self.options, self.precision, self.drafter = options, precision, drafter
        self.compute = compute_path(precision, torch.device(options.device))
        self.model = self._made(self.compute)
        self.engine = GivenModel(self.model)

    def _made(self, compute: Compute) -> Llama:
        folder = resolve_model(MODEL)
        model, plain = load_llama(folder), replace(compute, precision="bf16")
        if self.options.shape == "8b":
            model = grow_llama(model, LLAMA_3_8B, compute.device, compute.weight_dtype)
            model = scramble(model) if self.options.random else model
        model = apply_compute(model, plain if compute.quantized else compute)
        if compute.quantized:
            model = quantize(model, compute, calibration_prompts(folder, "builtin"))
        return model

    @property
    def weight_bytes(self) -> int:
        """Bytes that every plain step has to read: everything but the table of input tokens."""
        table = self.model.embed_tokens.weight
        tied = table.data_ptr() == getattr(self.model.lm_head, "weight", table).data_ptr()
        return module_bytes(self.model) - (0 if tied else table.numel() * table.element_size())

    def config(self, width: int, length: int, batch: int) -> TrialConfig:
        config = TrialConfig(
            model=MODEL,
            drafter=str(self.drafter),
            device=self.options.device,
            drafter_quantization=self.options.drafter_quantization,
            quantization=self.precision,
            kv_cache_dtype=self.options.kv_cache_dtype,
            beam_width=width,
            draft_len=length,
            batch_size=batch,
        )
        return config if length else config.baseline()

    def serve(self, requests: list[Request], width: int, length: int, batch: int) -> Steps:
        self.engine.prepare(self.config(width, length, batch), longest(requests))
        warm_up = [replace(r, max_new_tokens=min(8, r.max_new_tokens)) for r in requests[:batch]]
        list(self.engine.serve(warm_up))
        records = [r for r in self.engine.serve(requests) if isinstance(r, StepRecord)]
        return summarized(records)

    def predicted(
        self, requests: list[Request], width: int, length: int, batch: int
    ) -> MemorySplit:
        config = self.config(width, length, batch)
        return predict_memory(
            self.model.config, str(self.drafter), config, self.compute, longest(requests)
        )

    def close(self) -> None:
        self.engine.close()
        del self.model, self.engine
        torch.cuda.empty_cache()


def longest(requests: list[Request]) -> int:
    return max(len(r.prompt_token_ids) + r.max_new_tokens for r in requests)


def summarized(records: list[StepRecord]) -> Steps:
    steps = [r for r in records if not r.context_requests]
    reading = [r for r in records if r.context_requests]
    committed = [c for r in records for c in r.committed]
    seconds = sum(r.total_ms for r in records) / 1e3
    prefill_s = sum(r.prefill_ms for r in reading) / 1e3
    return Steps(
        step_ms=statistics.median(r.total_ms for r in steps),
        draft_ms=statistics.median(r.total_ms - r.verify_ms for r in steps),
        verify_ms=statistics.median(r.verify_ms for r in steps),
        tokens_per_s=(sum(committed) + len(reading)) / seconds,
        acceptance_length=sum(committed) / len(committed),
        prefill_tokens_per_s=sum(r.context_tokens for r in reading) / prefill_s,
    )


def long_requests(requests: list[Request], context: int, new: int, count: int) -> list[Request]:
    """Prompts of `context` tokens, made of the given ones end to end."""
    text = [token for r in requests for token in r.prompt_token_ids]
    text *= 1 + (count + 1) * context // len(text)
    cuts = [tuple(text[i * context : (i + 1) * context]) for i in range(count)]
    return [Request(f"long-{i}", cut, new) for i, cut in enumerate(cuts)]


def against_the_limits(subject: Subject, requests: list[Request]) -> Iterator[str]:
    """Plain decoding, verifying and drafting at one context, batch 1."""
    options = subject.options
    long = long_requests(requests, options.context, options.max_new_tokens, 2)
    plain = subject.serve(long, 1, 0, 1)
    limit = device_limits(options.device, "bf16").read_bytes_per_s
    if limit:
        least_ms = subject.weight_bytes / limit * 1e3
        share = least_ms / plain.step_ms
        yield (
            f"plain step {plain.step_ms:.3f} ms (verify {plain.verify_ms:.3f}), "
            f"{subject.weight_bytes / 1e9:.2f} GB of weights need {least_ms:.3f} ms: {share:.1%}"
        )
    yield f"prefill {plain.prefill_tokens_per_s:,.0f} tokens/s"
    wide = subject.serve(long, *TREE_OF_64, 1)
    yield (
        f"verify a tree of up to 64 nodes {wide.verify_ms:.3f} ms, "
        f"{wide.verify_ms / plain.verify_ms:.3f} times a plain one"
    )
    four = subject.serve(long, 4, 4, 1)
    yield (
        f"draft, tree, accept and host at (4, 4) {four.draft_ms:.3f} ms, "
        f"{four.draft_ms / plain.step_ms:.1%} of a plain step"
    )


def end_to_end(subject: Subject, requests: list[Request]) -> Iterator[str]:
    """Throughput by batch, with and without speculation, and memory."""
    yield "batch  W  D  tokens/s  per user  ms a step  acceptance  speed-up  speed-up / acceptance"
    for batch in subject.options.batch_sizes:
        subject.engine.close()  # a KV cache of another size would stay
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        served = requests[: max(8, 2 * batch)]
        plain = subject.serve(served, 1, 0, batch)
        for width, length in [(1, 0), *subject.options.trees]:
            own = plain if length == 0 else subject.serve(served, width, length, batch)
            gain = own.tokens_per_s / plain.tokens_per_s
            yield (
                f"{batch:<6} {width:<2} {length}  {own.tokens_per_s:8,.0f}  "
                f"{own.tokens_per_s / batch:8,.1f}  {own.step_ms:9.3f}  "
                f"{own.acceptance_length:10.3f}  {gain:8.2f}  {gain / own.acceptance_length:.2f}"
            )
        widest = max(subject.options.trees, key=lambda tree: tree[0] * tree[1])
        predicted = subject.predicted(served, *widest, batch)
        yield from memory_lines(predicted, subject.engine.memory())


def memory_lines(predicted: MemorySplit, used: MemorySplit) -> Iterator[str]:
    """Each part in MiB, predicted and used, and their ratio; what is not known is left out."""
    for part in ("weights", "drafter", "kv", "rest", "peak"):
        told, held = getattr(predicted, f"{part}_bytes"), getattr(used, f"{part}_bytes")
        if told is not None and held:
            yield (
                f"       {part:<8} {told / 2**20:10,.1f} MiB predicted  "
                f"{held / 2**20:10,.1f} used  {told / held:.4f}"
            )


def main() -> None:
    options = parsed()
    name = "135M" if options.shape == "135m" else LABEL
    name += ", random weights" if options.random else ""
    tokenizer = HFTokenizer(resolve_model(MODEL))
    count = max(8, 2 * max(options.batch_sizes))
    spec = WorkloadSpec(requests=count, max_new_tokens=options.max_new_tokens)
    requests = build_requests(load_workload("builtin"), tokenizer, spec, 400).requests
    print(f"{name}; {device_limits(options.device, 'bf16')}")
    with TemporaryDirectory() as scratch:
        drafter = fitting_drafter(options, Path(scratch))
        for precision in options.precisions.split(","):
            print(f"\n## {name}, {precision}, context {options.context}", flush=True)
            try:
                subject = Subject(options, precision, drafter)
                for part in (against_the_limits, end_to_end):
                    for line in part(subject, requests):
                        print(line, flush=True)
                subject.close()
            except TunerError as error:
                print(f"not measured: {error}", flush=True)


def fitting_drafter(options: argparse.Namespace, scratch: Path) -> Path:
    """The shipped drafter's folder, or one of it grown with the model."""
    if options.shape == "135m":
        return SHIPPED_DRAFTER
    small = load_llama(resolve_model(MODEL)).config
    base = replace(small, hidden_size=LLAMA_3_8B.hidden_size, vocab_size=LLAMA_3_8B.vocab_size)
    device = torch.device(options.device)
    drafter: nn.Module = load_drafter(SHIPPED_DRAFTER, small)
    size = options.draft_vocab_size
    grown = grow_drafter(drafter, base, device, torch.bfloat16, draft_vocab_size=size)
    save_drafter(grown, scratch)
    return scratch


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=("135m", "8b"), default="135m")
    parser.add_argument("--random", action="store_true", help="weights that write nonsense")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precisions", default="bf16")
    parser.add_argument("--draft-vocab-size", type=int, help="of the grown drafter, up to 128256")
    parser.add_argument("--drafter-quantization", choices=("fp8",))
    parser.add_argument("--kv-cache-dtype", choices=("auto", "fp8"), default="auto")
    parser.add_argument("--context", type=int, default=1000, help="tokens of the long prompts")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--batch-sizes", type=numbers, default=[1])
    parser.add_argument("--trees", type=trees, default=[(4, 4)], help="WxD, by commas")
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
