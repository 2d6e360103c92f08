"""`tuner train-drafter`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tuner.commands.output import JsonFlag, print_fields, print_json, reports_errors
from tuner.commands.prompts import read_prompts

_MODEL = typer.Option(help="smollm2-135m, a directory or a hub id.")
_DEVICE = typer.Option(help="auto, cpu, cuda or cuda:N.")


@reports_errors
def train_drafter(
    out: Annotated[Path, typer.Option(help="Folder of the new drafter.")],
    model: Annotated[str, _MODEL] = "smollm2-135m",
    kind: Annotated[
        str, typer.Option(help="recurrent, causal_lm or local_attention.")
    ] = "recurrent",
    layers: Annotated[
        str | None, typer.Option(help="causal_lm: layers of the model to keep, such as 0,1,29.")
    ] = None,
    begin_with: Annotated[
        str | None, typer.Option(help="local_attention: a recurrent drafter; else the shipped one.")
    ] = None,
    window: Annotated[
        int, typer.Option(help="local_attention: positions that it looks back.")
    ] = 512,
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
    tokens_per_step: Annotated[
        int | None, typer.Option(help="Prompts and padding included; 16,384, other kinds 8,192.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Peak; 1.5e-3, other kinds 1e-3.")
    ] = None,
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
    plain: Annotated[
        bool, typer.Option("--plain", help="The released shape, which Apple's layout can hold.")
    ] = False,
    recurrence: Annotated[str, typer.Option(help="elman or gated.")] = "elman",
    state_size: Annotated[int, typer.Option(help="0: the model's hidden size.")] = 0,
    report_every: Annotated[int, typer.Option(help="Steps between lines of progress.")] = 50,
    evaluate_every: Annotated[
        int, typer.Option(help="Steps between measures of acceptance.")
    ] = 100,
    patience: Annotated[
        int, typer.Option(help="Measures without improvement before it stops; 0: never.")
    ] = 20,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    device: Annotated[str, _DEVICE] = "auto",
    json_output: JsonFlag = False,
) -> None:
    """Train a drafter on the model's own answers.

    Every kind is watched on held-out prompts, stops early, goes on with --resume and ends with a
    verdict. Curriculum, draft length, draft vocabulary and shape belong to the recurrent one.
    """
    from tuner.commands import drafter_kinds as kinds
    from tuner.engines.redrafter.engine import pick_device
    from tuner.engines.redrafter.training.curriculum import Curriculum
    from tuner.engines.redrafter.training.loss import Objective
    from tuner.engines.redrafter.training.spec import PLAIN, TrainSpec
    from tuner.models import resolve_model

    where, folder = str(pick_device(device)), resolve_model(model)
    answers = data or out.with_name(f"{out.name}-answers.safetensors")
    settings: dict[str, Any] = {
        "model_dir": folder,
        "data": answers,
        "out": out,
        "max_steps": max_steps,
        "max_seconds": max_seconds,
        "objective": Objective(soft_share, kl_temperature, text_share, horizon_decay),
        "report_every": report_every,
        "evaluate_every": evaluate_every,
        "patience": patience,
        "seed": seed,
        "device": where,
    }
    own = {"tokens_per_step": tokens_per_step, "learning_rate": learning_rate}
    settings |= {name: value for name, value in own.items() if value is not None}
    kinds.check(kind, plain)
    if kind == "causal_lm":
        train = kinds.causal_lm(settings, layers, resume)
    elif kind == "local_attention":
        train = kinds.local_attention(settings, model, begin_with, window, resume)
    else:
        spec = TrainSpec(
            **settings,
            draft_len=draft_len,
            draft_vocab_size=draft_vocab_size,
            curriculum=Curriculum(one_step_share, growing_share, beam_share),
            recurrence=recurrence,
            state_size=state_size,
            **(PLAIN if plain else {}),
        )
        train = kinds.recurrent(spec, resume)
    if data is None and not (resume and answers.exists()):
        given = read_prompts(model, [prompt_file], prompts, 2) if prompt_file else {}
        _write_answers(folder, answers, prompts, given, seed, where)
    result = {"kind": kind, "drafter": str(out), "answers": str(answers), **train()}
    if json_output:
        print_json(result)
    else:
        result.pop("verdict", None)  # said already
        print_fields(result)


def _write_answers(
    model_dir: Path,
    answers: Path,
    prompts: int,
    given: dict[str, list[tuple[int, ...]]],
    seed: int,
    device: str,
) -> None:
    from tuner.engines.redrafter.training.generate import GenerateSpec, generate_answers

    answers.parent.mkdir(parents=True, exist_ok=True)
    generate = GenerateSpec(
        model_dir,
        answers,
        prompts=prompts,
        given=tuple(prompt for group in given.values() for prompt in group),
        seed=seed,
        device=device,
    )
    generate_answers(generate, _say)


def _say(fraction: float, text: str) -> None:
    print(f"{fraction:4.0%} {text}", file=sys.stderr)
