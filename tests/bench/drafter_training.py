"""What each training option buys: `python -m tests.bench.drafter_training [--help]`.

The base model writes training answers and the answers to the test prompts once; both are kept in
`--cache`. Then every variant, which differs from the shipped recipe in one thing, is trained on the
same answers for the same number of steps, all at the same time on one device, and measured by
exact acceptance at temperature 0; answers that repeat themselves or are very short do not count.
Rows are printed as they come. The last variant differs in its seed alone and shows the noise.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from profiles.records import WorkloadSpec
from tuner.engines.redrafter.drafters import load_draft_method
from tuner.engines.redrafter.linear import compute_path
from tuner.engines.redrafter.training.answers import prepare_answers
from tuner.engines.redrafter.training.batch_decode import Decoding, decode
from tuner.engines.redrafter.training.curriculum import Curriculum
from tuner.engines.redrafter.training.evaluate import measure
from tuner.engines.redrafter.training.forward import load_frozen
from tuner.engines.redrafter.training.generate import GenerateSpec, generate_answers
from tuner.engines.redrafter.training.loss import Objective
from tuner.engines.redrafter.training.progress import read_progress
from tuner.engines.redrafter.training.spec import PLAIN, TrainSpec
from tuner.engines.redrafter.training.train import train_drafter
from tuner.models import resolve_model
from tuner.workloads import HFTokenizer, build_requests, load_workload

GRID = ((1, 4), (4, 4), (8, 5), (16, 5))
SHIPPED = "shipped recipe"
VARIANTS: dict[str, dict[str, Any]] = {
    SHIPPED: {},
    "KL, T=1": {"objective": Objective(soft_share=1.0)},
    "KL, T=2": {"objective": Objective(soft_share=1.0, temperature=2.0)},
    "KL, T=0.5": {"objective": Objective(soft_share=1.0, temperature=0.5)},
    "cross-entropy on the model's choice": {"objective": Objective(soft_share=0.0)},
    "cross-entropy on the text": {"objective": Objective(text_share=1.0)},
    "half KL T=1, half text": {"objective": Objective(soft_share=1.0, text_share=0.5)},
    "horizon weights equal": {"objective": Objective(horizon_decay=1.0)},
    "horizon decay 0.7": {"objective": Objective(horizon_decay=0.7)},
    "stage 1 for 15 %": {"curriculum": Curriculum(one_step_share=0.15)},
    "stage 2 grows over 40 %": {"curriculum": Curriculum(growing_share=0.4)},
    "stages 1 and 2": {"curriculum": Curriculum(one_step_share=0.15, growing_share=0.3)},
    "stage 3 for the last 30 %": {"curriculum": Curriculum(beam_share=0.3)},
    "stage 3 for the last 60 %, W=8": {"curriculum": Curriculum(beam_share=0.6, beam_width=8)},
    "stages 1, 2 and 3": {"curriculum": Curriculum(0.15, 0.3, 0.3)},
    "no context layers": {"context_layers": ()},
    "no context network": {"context_width": 0, "num_context_blocks": 0},
    "neither (released layout)": PLAIN,
    "gated recurrence": {"recurrence": "gated"},
    "state half as wide again": {"state_size": 864},
    "another seed": {"seed": 1},
}  # fmt: skip
REPORT_S = 20.0
EVALUATION_SHARE = 0.25  # of the time left, kept for measuring


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    if options.variant:
        measure_variant(options)
        return
    began = time.time()
    options.deadline = began + options.seconds
    options.cache.mkdir(parents=True, exist_ok=True)
    names = [name for name in VARIANTS if not options.only or name in options.only]
    prepare(options)
    if not options.steps:
        options.steps = affordable_steps(options, len(names))
    print(
        f"{len(names)} variants of {options.steps} steps of {options.tokens_per_step} tokens on "
        f"{options.device}, torch {torch.__version__}; {time.time() - began:.0f} s gone",
        flush=True,
    )
    run_all(options, names, began)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cache", type=Path, default=Path("runs/bench-drafter-training"))
    parser.add_argument("--seconds", type=float, default=300, help="of everything")
    parser.add_argument("--data-seconds", type=float, default=60, help="of writing answers")
    parser.add_argument("--data-prompts", type=int, default=60_000)
    parser.add_argument("--data-batch", type=int, default=None, help="prompts answered together")
    parser.add_argument("--steps", type=int, default=0, help="0: what the time allows")
    parser.add_argument("--tokens-per-step", type=int, default=8192)
    parser.add_argument("--draft-vocab-size", type=int, default=8192)
    parser.add_argument("--workload", action="append", help="test prompts; default builtin")
    parser.add_argument("--requests", type=int, default=48, help="of each workload")
    parser.add_argument("--max-new-tokens", type=int, default=192)
    parser.add_argument("--only", action="append", choices=list(VARIANTS))
    parser.add_argument("--variant", choices=list(VARIANTS), help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def prepare(options: argparse.Namespace) -> None:
    """Write training answers and test answers, where the cache lacks them."""
    folder = resolve_model(options.model)
    data = options.cache / "answers.safetensors"
    if not data.exists():
        report = generate_answers(
            GenerateSpec(
                folder, data, prompts=options.data_prompts, max_seconds=options.data_seconds,
                batch_size=options.data_batch, device=options.device,
            )
        )  # fmt: skip
        print(f"{report.rows} training answers, {report.answer_tokens} tokens", flush=True)
    test = options.cache / "test.json"
    if not test.exists():
        test.write_text(json.dumps(write_test(options, folder)))


@torch.no_grad()
def write_test(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Prompts, their categories and the base model's greedy answers."""
    tokenizer = HFTokenizer(folder)
    prompts, categories = [], []
    for name in options.workload or ["builtin"]:
        workload = load_workload(name)
        spec = WorkloadSpec(
            workload=name,
            requests=min(options.requests, len(workload.prompts)),
            max_new_tokens=options.max_new_tokens,
        )
        for request in build_requests(workload, tokenizer, spec, 1024).requests:
            prompts.append(list(request.prompt_token_ids))
            categories.append(request.category)
    longest = max(map(len, prompts)) + options.max_new_tokens
    base = load_frozen(folder, torch.device(options.device), longest)
    how = Decoding(options.max_new_tokens, tokenizer.stop_token_ids)
    answers = [[t for t in row if t >= 0] for row in decode(base, prompts, how).tolist()]
    return {"prompts": prompts, "answers": answers, "categories": categories}


def train_spec(options: argparse.Namespace, name: str, out: Path) -> TrainSpec:
    spec = TrainSpec(
        resolve_model(options.model),
        options.cache / "answers.safetensors",
        out,
        draft_vocab_size=options.draft_vocab_size,
        tokens_per_step=options.tokens_per_step,
        max_steps=options.steps,
        warmup_steps=min(100, options.steps // 10),
        report_every=max(1, options.steps // 20),
        evaluate_every=max(1, options.steps // 20) * 20,
        checkpoint_seconds=3600,
        held_out_prompts=0,  # the last drafter is measured, not the best of some
        device=options.device,
    )
    return replace(spec, **VARIANTS[name])


def affordable_steps(options: argparse.Namespace, variants: int) -> int:
    """Time a few steps alone, and assume that the variants take turns."""
    options.steps = 40
    spec = train_spec(options, SHIPPED, options.cache / "calibration")
    rows = train_and_forget(replace(spec, max_steps=30, report_every=10, evaluate_every=30))
    step_s = (rows[-1].seconds - rows[0].seconds) / (rows[-1].step - rows[0].step)
    left = (options.deadline - time.time()) * (1 - EVALUATION_SHARE) - 15  # starting takes some
    steps = max(20, int(left / (variants * step_s)) // 20 * 20)
    print(f"{step_s * 1000:.1f} ms a step alone", flush=True)
    return steps


def train_and_forget(spec: TrainSpec) -> list[Any]:
    rows: list[Any] = []
    train_drafter(spec, rows.append)
    if spec.device != "cpu":
        torch.cuda.empty_cache()
    return rows


def run_all(options: argparse.Namespace, names: list[str], began: float) -> None:
    """Start every variant, and print what is known until all are done or time is up."""
    running = {name: start(options, name) for name in names}
    print(f"{'variant':<36} steps  " + "  ".join(f"({w},{d})" for w, d in GRID) + "  top-1  s")
    reported = time.time()
    while running and time.time() < options.deadline:
        for name in [name for name, child in running.items() if child.poll() is not None]:
            child = running.pop(name)
            path = folder_of(options, name) / "result.json"
            print(
                line(name, json.loads(path.read_text()))
                if path.exists()
                else f"{name:<36} failed with status {child.returncode}",
                flush=True,
            )
        if running and time.time() - reported > REPORT_S:
            reported = time.time()
            print(f"-- after {reported - began:.0f} s: {standing(options, running)}", flush=True)
        time.sleep(0.2)
    for name, child in running.items():
        child.kill()
        print(f"{name:<36} unfinished: {standing(options, [name])}", flush=True)


def start(options: argparse.Namespace, name: str) -> subprocess.Popen[bytes]:
    out = folder_of(options, name)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    command = [
        sys.executable, "-m", "tests.bench.drafter_training", "--variant", name,
        "--model", options.model, "--device", options.device, "--cache", options.cache,
        "--steps", options.steps, "--tokens-per-step", options.tokens_per_step,
        "--draft-vocab-size", options.draft_vocab_size, "--deadline", options.deadline,
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([str(part) for part in command], env=environment)


def folder_of(options: argparse.Namespace, name: str) -> Path:
    return options.cache / "variants" / name.replace(" ", "-").replace("%", "percent")


def standing(options: argparse.Namespace, names: Sequence[str] | dict[str, Any]) -> str:
    """The last reported step, loss and first top-1 of unfinished variants."""
    parts = []
    for name in names:
        rows = read_progress(folder_of(options, name))
        if rows:
            last = rows[-1]
            parts.append(
                f"{name}: step {last.step}, loss {last.loss:.3f}, top-1 {last.top1_by_draft[0]:.1%}"
            )
    return "; ".join(parts) or "nothing reported yet"


@dataclass(frozen=True)
class Measured:
    """A finished variant."""

    steps: int
    top1: float  # of the first drafted token, on the last training batches
    seconds: float
    acceptance_length: dict[str, float | None]


def line(name: str, result: dict[str, Any]) -> str:
    cells = "  ".join(
        "  n/a" if value is None else f"{value:5.3f}"
        for value in result["acceptance_length"].values()
    )
    return f"{name:<36} {result['steps']:5}  {cells}  {result['top1']:.3f}  {result['seconds']:.0f}"


def measure_variant(options: argparse.Namespace) -> None:
    """Train one variant and measure it; the work of a child process."""
    out = folder_of(options, options.variant)
    spec = train_spec(options, options.variant, out)
    left = options.deadline - time.time()
    spec = replace(spec, max_seconds=max(1.0, left * (1 - EVALUATION_SHARE / 2)))
    report = train_drafter(spec)
    cells = acceptance(options, out)
    result = Measured(report.steps, report.top1_by_draft[0], report.seconds, cells)
    partial = out / "result.partial"
    partial.write_text(json.dumps(result.__dict__))
    partial.replace(out / "result.json")


@torch.no_grad()
def acceptance(options: argparse.Namespace, drafter_dir: Path) -> dict[str, float | None]:
    """Exact acceptance lengths of the test answers."""
    test = json.loads((options.cache / "test.json").read_text())
    device = torch.device(options.device)
    longest = max(len(p) + len(a) for p, a in zip(test["prompts"], test["answers"], strict=True))
    base = load_frozen(resolve_model(options.model), device, longest)
    compute = compute_path("bf16" if device.type == "cuda" else "fp32", device)
    method = load_draft_method(str(drafter_dir), base, resolve_model(options.model), compute)
    answers = prepare_answers(base, test["prompts"], test["answers"], test["categories"], method)
    report = measure(base, method, answers, GRID)
    kept = {(c.beam_width, c.draft_len): c for c in report.kept if c.category == "all"}
    return {f"{w},{d}": kept[w, d].acceptance_length for w, d in GRID}


if __name__ == "__main__":
    main()
