"""What to train, how long, and how it is watched."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tuner.engines.redrafter.apple_layout import SCORED_TOKENS
from tuner.engines.redrafter.training.curriculum import Curriculum
from tuner.engines.redrafter.training.loss import Objective
from tuner.errors import BadInput

RECURRENCES = ("elman", "gated")
_FREE = {"model_dir", "data", "out", "device", "max_seconds", "patience", "checkpoint_seconds"}
PLAIN: dict[str, Any] = {
    "context_layers": (), "context_width": 0, "num_context_blocks": 0,
    "scored_tokens": SCORED_TOKENS,
}  # fmt: skip
_POSITIVE = (
    "num_blocks", "draft_vocab_size", "draft_len", "tokens_per_step", "max_steps", "max_seconds",
    "learning_rate", "report_every", "evaluate_every",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrainSpec:
    """What to train and for how long: until `max_steps` or `max_seconds`, whichever is first.

    The defaults are the recipe of the shipped drafter; `PLAIN` holds what the released layout asks
    for instead.
    """

    model_dir: Path
    data: Path
    out: Path
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
    tokens_per_step: int = 16_384  # prompts and padding included
    max_steps: int = 1000
    max_seconds: float = math.inf
    learning_rate: float = 1.5e-3
    warmup_steps: int = 100
    objective: Objective = field(default_factory=Objective)
    curriculum: Curriculum = field(default_factory=Curriculum)
    report_every: int = 50  # steps between rows of progress
    evaluate_every: int = 100  # steps between measures of acceptance
    checkpoint_seconds: float = 30.0  # at least so long between checkpoints; each after a measure
    held_out_prompts: int = 32  # never trained on; at most a fifth of the prompts
    held_out_tokens: int = 96  # of each answer
    patience: int = 20  # evaluations without a longer acceptance before it stops; 0: never
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0:  # NaN too
                raise BadInput(name, getattr(self, name), "must be positive")
        for name in (
            "warmup_steps", "held_out_prompts", "held_out_tokens", "patience", "state_size",
            "scored_tokens", "checkpoint_seconds",
        ):  # fmt: skip
            if not getattr(self, name) >= 0:
                raise BadInput(name, getattr(self, name), "must not be negative")
        if self.recurrence not in RECURRENCES:
            raise BadInput("recurrence", self.recurrence, f"choose one of {RECURRENCES}")
        if self.evaluate_every % self.report_every:
            raise BadInput(
                "evaluate_every", self.evaluate_every, f"take a multiple of {self.report_every}"
            )
        if self.num_context_blocks and self.context_width == 0:
            raise BadInput("num_context_blocks", self.num_context_blocks, "needs a context_width")

    def recipe(self) -> dict[str, Any]:
        """Everything that shapes the loss curve, as JSON values: what a resumed run must share."""
        fields = {name: value for name, value in asdict(self).items() if name not in _FREE}
        layers = self.context_layers
        return fields | {"context_layers": None if layers is None else list(layers)}
