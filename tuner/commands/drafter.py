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
    from tuner.engines.redrafter.training.progress import TrainRow
    from tuner.engines.redrafter.training.spec import TrainSpec

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
    prompt_file: Annotated[
        str | None, typer.Option(help="Answer these instead: builtin or a prompt file.")
    ] = None,
    draft_len: Annotated[int, typer.Option(help="Tokens to be drafted at most.")] = 6,
    draft_vocab_size: Annotated[int, typer.Option(help="Tokens the drafter can propose.")] = 8192,
    max_steps: Annotated[int, typer.Option(help="Training steps.")] = 1000,
    max_seconds: Annotated[float, typer.Option(help="Training time.")] = float("inf"),
    tokens_per_step: Annotated[int, typer.Option(help="Prompts and padding included.")] = 16_384,
    learning_rate: Annotated[float, typer.Option(help="Peak.")] = 1.5e-3,
    soft_share: Annotated[
        float, typer.Option(help="The model's distribution (1) against its likeliest token (0).")
    ] = 0.1,
    kl_temperature: Annotated[
        float, typer.Option(help="Temperature T of that distribution; the loss has T squared.")
    ] = 1.0,
    text_share: Annotated[
        float, typer.Option(help="Share of cross-entropy on the text; 1 is nothing else.")
    ] = 0.0,
    horizon_decay: Annotated[
        float, typer.Option(help="Weight of a drafted position relative to the one before.")
    ] = 0.85,
    one_step_share: Annotated[
        float, typer.Option(help="Stage 1: share of the training that drafts one token.")
    ] = 0.0,
    growing_share: Annotated[
        float, typer.Option(help="Stage 2: share over which drafts grow to draft_len.")
    ] = 0.0,
    beam_share: Annotated[
        float, typer.Option(help="Stage 3: last share, with beam search in the loop.")
    ] = 0.0,
    report_every: Annotated[int, typer.Option(help="Steps between lines of progress.")] = 50,
    evaluate_every: Annotated[
        int, typer.Option(help="Steps between acceptance measures and checkpoints.")
    ] = 100,
    patience: Annotated[
        int, typer.Option(help="Measures without improvement before it stops; 0: never.")
    ] = 5,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    device: Annotated[str, _DEVICE] = "auto",
    json_output: JsonFlag = False,
) -> None:
    """Train a recurrent drafter on the model's own answers."""
    from tuner.engines.redrafter.engine import pick_device
    from tuner.engines.redrafter.training.curriculum import Curriculum
    from tuner.engines.redrafter.training.loss import Objective
    from tuner.engines.redrafter.training.spec import TrainSpec
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
        tokens_per_step=tokens_per_step,
        learning_rate=learning_rate,
        objective=Objective(soft_share, kl_temperature, text_share, horizon_decay),
        curriculum=Curriculum(one_step_share, growing_share, beam_share),
        report_every=report_every,
        evaluate_every=evaluate_every,
        patience=patience,
        seed=seed,
        device=where,
    )
    if data is None and not (resume and answers.exists()):
        given = _prompts(model, [prompt_file], prompts, 2) if prompt_file else {}
        _write_answers(spec, prompts, given)
    report = train(spec, _say_training, resume)
    result = {"drafter": str(out), "answers": str(answers), **asdict(report)}
    print_json(result) if json_output else print_fields(result)


def _write_answers(spec: TrainSpec, prompts: int, given: dict[str, list[tuple[int, ...]]]) -> None:
    from tuner.engines.redrafter.training.generate import GenerateSpec, generate_answers

    spec.data.parent.mkdir(parents=True, exist_ok=True)
    generate = GenerateSpec(
        spec.model_dir,
        spec.data,
        prompts=prompts,
        given=tuple(prompt for group in given.values() for prompt in group),
        seed=spec.seed,
        device=spec.device,
    )
    generate_answers(generate, _say)


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


def _say_training(row: TrainRow) -> None:
    losses = " ".join(f"{loss:.2f}" for loss in row.loss_by_draft)
    hits = " ".join(f"{share:.0%}" for share in row.top1_by_draft)
    length = row.acceptance_length
    accepted = "" if length is None else f", {length:.2f} tokens a step on held-out prompts"
    print(
        f"{row.fraction:4.0%} step {row.step}, stage {row.stage}: loss {row.loss:.3f} ({losses}), "
        f"top-1 {hits}{accepted}",
        file=sys.stderr,
    )
