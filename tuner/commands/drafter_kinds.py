"""What `tuner train-drafter` can train: each kind is checked first, and trained when called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.engines.redrafter.drafters.training_loop import LoopSpec
    from tuner.engines.redrafter.training.progress import TrainRow
    from tuner.engines.redrafter.training.spec import TrainSpec
    from tuner.engines.redrafter.training.verdict import Verdict

KINDS = ("recurrent", "causal_lm", "local_attention")
Training = Callable[[], dict[str, Any]]
"""Trains, tells stderr how it goes, and returns what is to be printed."""


def check(kind: str, recurrent_only: dict[str, bool]) -> None:
    """Raise BadInput for a kind there is not, or a flag that it does not have."""
    from tuner.errors import BadInput

    if kind not in KINDS:
        raise BadInput("--kind", kind, f"use one of {', '.join(KINDS)}")
    for flag, given in recurrent_only.items():
        if given and kind != "recurrent":
            raise BadInput(flag, given, f"belongs to --kind recurrent, not to {kind}")


def recurrent(spec: TrainSpec, resume: bool) -> Training:
    """A recurrent drafter, with measures on held-out prompts and a verdict. Raises BadInput."""
    from tuner.engines.redrafter.training.train import check_folder, train_drafter

    check_folder(spec, resume)

    def train() -> dict[str, Any]:
        report = train_drafter(spec, _say_row, resume)
        _say_verdict(report.verdict)
        return asdict(report)

    return train


def causal_lm(model_dir: Path, out: Path, layers: str | None, spec: LoopSpec) -> Training:
    """A causal LM of some of the base model's layers, such as "0,1,29". Raises BadInput."""
    from tuner.engines.redrafter.config import LlamaConfig
    from tuner.engines.redrafter.drafters.causal_lm_training import (
        check_layers,
        some_layers,
        train_causal_lm,
    )

    depth = LlamaConfig.from_dir(model_dir).num_layers
    chosen = some_layers(depth) if layers is None else _parse_layers(layers)
    check_layers(chosen, depth)
    return lambda: asdict(train_causal_lm(model_dir, out, chosen, spec, _say_step))


def local_attention(
    model: str, model_dir: Path, out: Path, begin_with: str | None, window: int, spec: LoopSpec
) -> Training:
    """A recurrent drafter that is taught to look back as well. Raises BadInput."""
    from tuner.engines.redrafter.checkpoint import load_drafter
    from tuner.engines.redrafter.config import LlamaConfig
    from tuner.engines.redrafter.drafters.local_attention_training import train_local_attention
    from tuner.engines.redrafter.drafters.look_back import LookBackConfig
    from tuner.engines.redrafter.engine import SHIPPED_DRAFTER
    from tuner.errors import BadInput
    from tuner.models import BUILTIN_MODEL, resolve_model

    if begin_with is None and model != BUILTIN_MODEL:
        raise BadInput("--begin-with", None, "name the recurrent drafter that is to look back")
    folder = resolve_model(begin_with) if begin_with else SHIPPED_DRAFTER
    load_drafter(folder, LlamaConfig.from_dir(model_dir))
    config = LookBackConfig(window=window)
    return lambda: asdict(train_local_attention(model_dir, folder, out, config, spec, _say_step))


def _parse_layers(text: str) -> tuple[int, ...]:
    from tuner.errors import BadInput

    try:
        return tuple(int(layer) for layer in text.split(","))
    except ValueError as error:
        raise BadInput("--layers", text, "write numbers such as 0,1,14,28,29") from error


def _say_step(step: int, loss: float) -> None:
    print(f"step {step}: loss {loss:.3f}", file=sys.stderr)


def _say_row(row: TrainRow) -> None:
    losses = " ".join(f"{loss:.2f}" for loss in row.loss_by_draft)
    hits = " ".join(f"{share:.0%}" for share in row.top1_by_draft)
    length = row.acceptance_length
    accepted = "" if length is None else f", {length:.2f} tokens a step on held-out prompts"
    print(
        f"{row.fraction:4.0%} step {row.step}, stage {row.stage}: loss {row.loss:.3f} ({losses}), "
        f"top-1 {hits}{accepted}",
        file=sys.stderr,
    )


def _say_verdict(verdict: Verdict) -> None:
    print(verdict.text, file=sys.stderr)
    for cause in verdict.causes:
        print(f"  {cause.name}: {cause.evidence}. Remedy: {cause.remedy}.", file=sys.stderr)
