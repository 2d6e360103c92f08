"""`tuner train-drafter` and `tuner eval-drafter`."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.commands.output import JsonFlag, print_fields, print_json, reports_errors

if TYPE_CHECKING:
    from tuner.engines.redrafter.training.train import TrainProgress

_MODEL = typer.Option(help="smollm2-135m, a directory or a hub id.")
_DEVICE = typer.Option(help="auto, cpu, cuda or cuda:N.")
MAX_PROMPT_TOKENS = 2048


@reports_errors
def train_drafter(
    out: Annotated[Path, typer.Option(help="Folder of the new drafter.")],
    model: Annotated[str, _MODEL] = "smollm2-135m",
    data: Annotated[
        Path | None, typer.Option(help="Answers made earlier; else the model writes some.")
    ] = None,
    prompts: Annotated[int, typer.Option(help="Prompts the model invents and answers.")] = 2000,
    draft_len: Annotated[int, typer.Option(help="Tokens to be drafted at most.")] = 6,
    draft_vocab_size: Annotated[int, typer.Option(help="Tokens the drafter can propose.")] = 8192,
    max_steps: Annotated[int, typer.Option(help="Training steps.")] = 1000,
    max_seconds: Annotated[float, typer.Option(help="Training time.")] = float("inf"),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    device: Annotated[str, _DEVICE] = "auto",
    json_output: JsonFlag = False,
) -> None:
    """Train a recurrent drafter on the model's own answers."""
    from tuner.engines.redrafter.engine import pick_device
    from tuner.engines.redrafter.training.generate import GenerateSpec, generate_answers
    from tuner.engines.redrafter.training.train import TrainSpec
    from tuner.engines.redrafter.training.train import train_drafter as train
    from tuner.models import resolve_model

    where = str(pick_device(device))
    folder = resolve_model(model)
    answers = data or out.with_name(f"{out.name}-answers.safetensors")
    spec = TrainSpec(
        folder,
        answers,
        out,
        draft_len=draft_len,
        draft_vocab_size=draft_vocab_size,
        max_steps=max_steps,
        max_seconds=max_seconds,
        seed=seed,
        device=where,
    )
    if data is None:
        out.parent.mkdir(parents=True, exist_ok=True)
        generate = GenerateSpec(folder, answers, prompts=prompts, seed=seed, device=where)
        generate_answers(generate, _say)
    report = {"drafter": str(out), "answers": str(answers), **asdict(train(spec, _say_training))}
    print_json(report) if json_output else print_fields(report)


@reports_errors
def eval_drafter(
    drafter: Annotated[
        str | None, typer.Option(help="A drafter directory; else the shipped one.")
    ] = None,
    model: Annotated[str, _MODEL] = "smollm2-135m",
    workload: Annotated[
        list[str] | None, typer.Option(help="builtin or a prompt file; may be given repeatedly.")
    ] = None,
    requests: Annotated[int, typer.Option(help="Prompts taken of each workload.")] = 24,
    max_new_tokens: Annotated[int, typer.Option(help="Output limit of an answer.")] = 128,
    grid: Annotated[
        str, typer.Option(help="Pairs beam_width x draft_len.")
    ] = "1x1,1x3,1x4,2x3,4x4,8x5,16x5",
    device: Annotated[str, _DEVICE] = "auto",
    json_output: JsonFlag = False,
) -> None:
    """Measure exact acceptance at temperature 0 by beam width, draft length and category."""
    from tuner.engines.redrafter.engine import SHIPPED_DRAFTER, pick_device
    from tuner.engines.redrafter.training.evaluate import evaluate_drafter
    from tuner.models import resolve_model

    report = evaluate_drafter(
        resolve_model(model),
        resolve_model(drafter) if drafter else SHIPPED_DRAFTER,
        _prompts(model, workload or ["builtin"], requests, max_new_tokens),
        _parse_grid(grid),
        max_new_tokens,
        str(pick_device(device)),
    )
    result = {
        "prompts": report.prompts,
        "repeating": report.repeating,
        "short": report.short,
        "acceptance_length": _table(report.kept),
        "acceptance_length_with_repeating": _table(report.everything),
    }
    print_json(result) if json_output else print_fields(result)


def _prompts(
    model: str, workloads: list[str], requests: int, max_new_tokens: int
) -> dict[str, list[tuple[int, ...]]]:
    """Tokenize the workloads and group them by category."""
    from profiles.records import TrialConfig, WorkloadSpec
    from tuner.engines.base import Engine
    from tuner.workloads import build_requests, load_workload

    tokenizer = Engine.tokenizer(TrialConfig(model=model))
    groups: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for name in workloads:
        loaded = load_workload(name)
        count = min(requests, len(loaded.prompts) or requests)
        spec = WorkloadSpec(workload=name, requests=count, max_new_tokens=max_new_tokens)
        for request in build_requests(loaded, tokenizer, spec, MAX_PROMPT_TOKENS).requests:
            groups[request.category].append(request.prompt_token_ids)
    return groups


def _parse_grid(text: str) -> list[tuple[int, int]]:
    from tuner.errors import BadInput

    try:
        pairs = [tuple(map(int, cell.split("x"))) for cell in text.split(",")]
        return [(width, length) for width, length in pairs]
    except ValueError as error:
        raise BadInput("--grid", text, "write pairs such as 4x4,8x5") from error


def _table(cells: list[Any]) -> dict[str, dict[str, float | None]]:
    """Acceptance length by category, then by `W x D`."""
    table: dict[str, dict[str, float | None]] = defaultdict(dict)
    for cell in cells:
        length = cell.acceptance_length
        rounded = None if length is None else round(length, 3)
        table[cell.category][f"{cell.beam_width}x{cell.draft_len}"] = rounded
    return table


def _say(fraction: float, text: str) -> None:
    print(f"{fraction:4.0%} {text}", file=sys.stderr)


def _say_training(progress: TrainProgress) -> None:
    by_draft = " ".join(f"{loss:.2f}" for loss in progress.loss_by_draft)
    print(f"step {progress.step}: loss {progress.loss:.3f} ({by_draft})", file=sys.stderr)
