"""What to train, how long, and how it is watched."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tuner.engines.redrafter.apple_layout import SCORED_TOKENS
from tuner.engines.redrafter.training.curriculum import Curriculum
from tuner.engines.redrafter.training.loss import Objective
from tuner.errors import BadInput

RECURRENCES = ("elman", "gated")
_FREE = {
    "model_dir", "data", "out", "recurrent_dir", "device", "max_seconds", "patience",
    "checkpoint_seconds",
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "context_layers": (), "context_width": 0, "num_context_blocks": 0,
    "scored_tokens": SCORED_TOKENS,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """How any drafter is trained and watched: until `max_steps` or `max_seconds` are used up."""

    model_dir: Path
    data: Path  # what `generate` wrote
    out: Path
    tokens_per_step: int = 8192  # prompts and padding included
    max_steps: int = 1000
    max_seconds: float = math.inf
    learning_rate: float = 1e-3
    warmup_steps: int = 50
    objective: Objective = field(default_factory=Objective)
    report_every: int = 50  # steps between rows of progress
    evaluate_every: int = 100  # steps between measures of acceptance
    checkpoint_seconds: float = 30.0  # at least so long between checkpoints; each after a measure
    held_out_prompts: int = 32  # never trained on; at most a fifth of the prompts
    held_out_tokens: int = 96  # of each answer
    patience: int = 20  # evaluations without a longer acceptance before it stops; 0: never
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        self._positive(
            "tokens_per_step", "max_steps", "max_seconds", "learning_rate", "report_every",
            "evaluate_every",
        )  # fmt: skip
        self._not_negative(
            "warmup_steps", "held_out_prompts", "held_out_tokens", "patience", "checkpoint_seconds"
        )
        if self.evaluate_every % self.report_every:
            raise BadInput(
                "evaluate_every", self.evaluate_every, f"take a multiple of {self.report_every}"
            )

    def _positive(self, *names: str) -> None:
        for name in names:
            if not getattr(self, name) > 0:  # NaN too
                raise BadInput(name, getattr(self, name), "must be positive")

    def _not_negative(self, *names: str) -> None:
        for name in names:
            if not getattr(self, name) >= 0:
                raise BadInput(name, getattr(self, name), "must not be negative")

    def recipe(self) -> dict[str, Any]:
        """Everything that shapes the loss curve, as JSON values: what a resumed run must share."""
        fields = {name: value for name, value in asdict(self).items() if name not in _FREE}
        values: dict[str, Any] = json.loads(json.dumps(fields))
        return values


@dataclass(frozen=True, slots=True)
class TrainSpec(LoopSpec):
    """A recurrent drafter.

    The defaults are the recipe of the shipped drafter; `PLAIN` holds what the released layout asks
    for instead.
    """

    tokens_per_step: int = 16_384
    learning_rate: float = 1.5e-3
    warmup_steps: int = 100
    exit_dim: int | None = None  # None: the base model's hidden size
    num_blocks: int = 2
    draft_vocab_size: int = 8192
    draft_len: int = 6
    context_layers: tuple[int, ...] | None = None  # None: three, over the depth of the model
    context_width: int | None = None  # None: half as much again as the hidden size
    num_context_blocks: int = 2
    recurrence: str = "elman"  # or gated
    state_size: int = 0  # 0: the base model's hidden size
    scored_tokens: int = 0  # as in `DrafterConfig`; nothing that training changes
    curriculum: Curriculum = field(default_factory=Curriculum)

    def __post_init__(self) -> None:
        LoopSpec.__post_init__(self)  # NOTE: super() does not find a class that has slots
        self._positive("num_blocks", "draft_vocab_size", "draft_len")
        self._not_negative("state_size", "scored_tokens")
        if self.recurrence not in RECURRENCES:
            raise BadInput("recurrence", self.recurrence, f"choose one of {RECURRENCES}")
        if self.num_context_blocks and self.context_width == 0:
            raise BadInput("num_context_blocks", self.num_context_blocks, "needs a context_width")
