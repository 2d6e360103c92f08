"""What `tuner train-drafter` can train: each kind is checked first, and trained when called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.engines.redrafter.training.progress import TrainRow
    from tuner.engines.redrafter.training.spec import LoopSpec, TrainSpec
    from tuner.engines.redrafter.training.train import TrainReport
    from tuner.engines.redrafter.training.verdict import Verdict

KINDS = ("recurrent", "causal_lm", "local_attention")
Training = Callable[[], dict[str, Any]]
"""Trains, tells stderr how it goes, and returns what is to be printed."""


def check(kind: str, plain: bool) -> None:
    """Raise BadInput for a kind there is not, or one that has no plain form."""
    from tuner.errors import BadInput

    if kind not in KINDS:
        raise BadInput("--kind", kind, f"use one of {', '.join(KINDS)}")
    if plain and kind != "recurrent":
        raise BadInput("--plain", plain, f"belongs to --kind recurrent, not to {kind}")


def recurrent(spec: TrainSpec, resume: bool) -> Training:
    """A recurrent drafter. Raises BadInput."""
    from tuner.engines.redrafter.training.train import train_drafter

    return _watched(partial(train_drafter, spec), spec, resume)


def causal_lm(settings: dict[str, Any], layers: str | None, resume: bool) -> Training:
    """A causal LM of some of the base model's layers, such as "0,1,29". Raises BadInput."""
    from tuner.engines.redrafter.config import LlamaConfig
    from tuner.engines.redrafter.drafters.causal_lm_training import (
        CausalLMSpec,
        check_layers,
        some_layers,
        train_causal_lm,
    )

    depth = LlamaConfig.from_dir(settings["model_dir"]).num_layers
    chosen = some_layers(depth) if layers is None else _parse_layers(layers)
    check_layers(chosen, depth)
    spec = CausalLMSpec(**settings, layers=chosen)
    return _watched(partial(train_causal_lm, spec), spec, resume)


def local_attention(
    settings: dict[str, Any], model: str, begin_with: str | None, window: int, resume: bool
) -> Training:
    """A recurrent drafter that is taught to look back as well. Raises BadInput."""
    from tuner.engines.redrafter.checkpoint import load_drafter
    from tuner.engines.redrafter.config import LlamaConfig
    from tuner.engines.redrafter.drafters.local_attention_training import (
        LocalAttentionSpec,
        train_local_attention,
    )
    from tuner.engines.redrafter.drafters.look_back import LookBackConfig
    from tuner.engines.redrafter.engine import SHIPPED_DRAFTER
    from tuner.errors import BadInput
    from tuner.models import BUILTIN_MODEL, resolve_model

    if begin_with is None and model != BUILTIN_MODEL:
        raise BadInput("--begin-with", None, "name the recurrent drafter that is to look back")
    folder = resolve_model(begin_with) if begin_with else SHIPPED_DRAFTER
    load_drafter(folder, LlamaConfig.from_dir(settings["model_dir"]))
    look_back = LookBackConfig(window=window)
    spec = LocalAttentionSpec(**settings, recurrent_dir=folder, look_back=look_back)
    return _watched(partial(train_local_attention, spec), spec, resume)


def _watched(train: Callable[..., TrainReport], spec: LoopSpec, resume: bool) -> Training:
    from tuner.engines.redrafter.training.train import check_folder

    check_folder(spec, resume)

    def run() -> dict[str, Any]:
        report = train(_say_row, resume)
        _say_verdict(report.verdict)
        return asdict(report)

    return run


def _parse_layers(text: str) -> tuple[int, ...]:
    from tuner.errors import BadInput

    try:
        return tuple(int(layer) for layer in text.split(","))
    except ValueError as error:
        raise BadInput("--layers", text, "write numbers such as 0,1,14,28,29") from error


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
