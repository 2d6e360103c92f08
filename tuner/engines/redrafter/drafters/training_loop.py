"""The loop that trains a drafter by its loss on batches of the base model's answers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn

from tuner.engines.redrafter.training.batch import Batch
from tuner.engines.redrafter.training.loss import Objective
from tuner.engines.redrafter.training.optimizer import Budget, adamw, descend
from tuner.errors import BadInput

OnStep = Callable[[int, float], None]
"""Called with the step and its loss, now and then."""


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """How to train: until `max_steps` or `max_seconds`, whichever is first."""

    data: Path  # what `training.generate` wrote
    tokens_per_step: int = 8192  # prompts and padding included
    max_steps: int = 1000
    max_seconds: float = math.inf
    learning_rate: float = 1e-3
    warmup_steps: int = 50
    objective: Objective = field(default_factory=Objective)
    report_every: int = 50
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("tokens_per_step", "max_steps", "max_seconds", "learning_rate"):
            if getattr(self, name) <= 0:
                raise BadInput(name, getattr(self, name), "must be positive")


@dataclass(frozen=True, slots=True)
class LoopReport:
    """What was done; `loss` is the last step's."""

    steps: int
    seconds: float
    loss: float


def run_loop(
    module: nn.Module,
    batches: Iterable[Batch],
    loss_of: Callable[[Batch], Tensor],
    spec: LoopSpec,
    on_step: OnStep = lambda step, loss: None,
) -> LoopReport:
    """Train what in `module` asks for gradients.

    Raises:
        BadInput: the loss is no longer finite.
    """
    optimizer = adamw(p for p in module.parameters() if p.requires_grad)
    began, loss = time.monotonic(), math.nan
    budget = Budget(spec.max_steps, spec.max_seconds, spec.learning_rate, spec.warmup_steps, began)
    for step in descend(optimizer, batches, lambda batch, _: loss_of(batch), budget):
        if step.fraction >= 1 or step.number % spec.report_every == 0:
            loss = float(step.loss)
            if not math.isfinite(loss):
                raise BadInput("learning_rate", spec.learning_rate, "training diverged; lower it")
            on_step(step.number, loss)
    return LoopReport(step.number, time.monotonic() - began, loss)
