"""Train a drafter on answers that the base model wrote.

For every position t of an answer the drafter is started from the base model's hidden state at t and
unrolled over the true tokens t+1, t+2, ...; at each it is to say what the base model says there.
Hidden states and targets are computed for each batch anew and never stored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tuner.engines.redrafter.checkpoint import save_drafter
from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.drafter import Drafter, DrafterConfig
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch import BatchReader
from tuner.engines.redrafter.training.forward import load_frozen
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.engines.redrafter.training.step import train_step
from tuner.errors import BadInput


@dataclass(frozen=True, slots=True)
class TrainSpec:
    """What to train and for how long: until `max_steps` or `max_seconds`, whichever is first.

    The defaults are the recipe of the shipped drafter. For the released layout, without a context
    network, give `context_layers=()`, `context_width=0` and `num_context_blocks=0`.
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
    tokens_per_step: int = 16_384  # prompts and padding included
    max_steps: int = 1000
    max_seconds: float = math.inf
    learning_rate: float = 1.5e-3
    warmup_steps: int = 100
    soft_share: float = 0.1
    horizon_decay: float = 0.85  # weight of each drafted position relative to the one before
    report_every: int = 50
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in (
            "num_blocks", "draft_vocab_size", "draft_len", "tokens_per_step", "max_steps",
            "max_seconds", "learning_rate", "report_every",
        ):  # fmt: skip
            if getattr(self, name) <= 0:
                raise BadInput(name, getattr(self, name), "must be positive")
        for name in ("soft_share", "horizon_decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadInput(name, getattr(self, name), "must be in [0, 1]")
        if self.num_context_blocks and self.context_width == 0:
            raise BadInput("num_context_blocks", self.num_context_blocks, "needs a context_width")


@dataclass(frozen=True, slots=True)
class TrainProgress:
    """Where training stands. `drafter` is live: look, do not touch."""

    step: int
    fraction: float
    loss: float
    loss_by_draft: list[float]
    positions: int
    seconds: float
    drafter: Drafter


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What was done."""

    steps: int
    positions: int
    seconds: float
    loss: float
    loss_by_draft: list[float]
    parameters: int
    vocab_coverage: float  # share of answer tokens that the draft vocabulary holds


OnProgress = Callable[[TrainProgress], None]


def train_drafter(spec: TrainSpec, on_progress: OnProgress = lambda progress: None) -> TrainReport:
    """Train and write a drafter directory to `spec.out`.

    Raises:
        BadInput: data or shapes that do not fit the model.
    """
    device = torch.device(spec.device)
    torch.manual_seed(spec.seed)
    rows = AnswerRows.load(spec.data)
    base = load_frozen(spec.model_dir, device, int(rows.offsets.diff().max()))
    drafter, coverage = new_drafter(spec, base, rows)
    reader = BatchReader(rows, spec.tokens_per_step, spec.seed, device)
    progress = _run(spec, base, drafter, reader, on_progress)
    save_drafter(drafter, spec.out)
    return TrainReport(
        steps=progress.step,
        positions=progress.positions,
        seconds=progress.seconds,
        loss=progress.loss,
        loss_by_draft=progress.loss_by_draft,
        parameters=sum(p.numel() for p in drafter.parameters()),
        vocab_coverage=coverage,
    )


def new_drafter(spec: TrainSpec, base: Llama, rows: AnswerRows) -> tuple[Drafter, float]:
    """Return a fresh fp32 drafter on the base model's device, and its vocabulary's coverage."""
    config = base.config
    layers, width = _context(spec, config)
    if bad := [n for n in layers if not 1 <= n <= config.num_layers]:
        raise BadInput("context_layers", bad, f"the model has layers 1 to {config.num_layers}")
    if spec.draft_vocab_size > config.vocab_size:
        raise BadInput(
            "draft_vocab_size",
            spec.draft_vocab_size,
            f"the model has only {config.vocab_size} tokens",
        )
    device = base.norm.weight.device
    drafter = Drafter(
        DrafterConfig(
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
            exit_dim=spec.exit_dim or config.hidden_size,
            num_blocks=spec.num_blocks,
            draft_vocab_size=spec.draft_vocab_size,
            trained_draft_len=spec.draft_len,
            context_layers=layers,
            context_width=width,
            num_context_blocks=spec.num_context_blocks,
        )
    ).to(device)
    counts = rows.count_answer_tokens(config.vocab_size)
    order = counts.argsort(descending=True, stable=True)[: spec.draft_vocab_size]
    drafter.draft_vocab = order.to(device)
    _initialise(drafter, base)
    return drafter, float(counts[order].sum() / counts.sum())


def _context(spec: TrainSpec, config: LlamaConfig) -> tuple[tuple[int, ...], int]:
    layers, width = spec.context_layers, spec.context_width
    if layers is None:
        depths = (round(config.num_layers * share / 15) for share in (4, 8, 12))
        layers = tuple(sorted({max(1, depth) for depth in depths}))
    if width is None:
        width = -(-config.hidden_size * 3 // 2 // 128) * 128
    return layers, width


def _initialise(drafter: Drafter, base: Llama) -> None:
    """Start the head as the LM head's rows and the recurrence at the embedding's scale."""
    with torch.no_grad():
        embedding_rms = base.embed_tokens.weight.float().square().mean().sqrt()
        drafter.rnn_w.weight /= embedding_rms
        if drafter.config.exit_dim == drafter.config.hidden_size:
            drafter.head.weight.copy_(base.lm_head.weight[drafter.draft_vocab])


def _run(
    spec: TrainSpec, base: Llama, drafter: Drafter, reader: BatchReader, on_progress: OnProgress
) -> TrainProgress:
    began, positions, step = time.monotonic(), 0, 0
    optimizer = torch.optim.AdamW(
        drafter.parameters(), betas=(0.9, 0.99), weight_decay=0.01, fused=spec.device != "cpu"
    )
    for step, batch in enumerate(reader, start=1):
        fraction = max(step / spec.max_steps, (time.monotonic() - began) / spec.max_seconds)
        for group in optimizer.param_groups:
            group["lr"] = spec.learning_rate * _rate(step, fraction, spec)
        loss, by_draft = train_step(base, drafter, batch, spec.soft_share, spec.horizon_decay)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        positions += len(batch.positions)
        last = fraction >= 1
        if last or step % spec.report_every == 0:
            progress = TrainProgress(
                step, min(fraction, 1.0), float(loss.detach()), by_draft.tolist(),
                positions, time.monotonic() - began, drafter,
            )  # fmt: skip
            if not math.isfinite(progress.loss):
                raise BadInput("learning_rate", spec.learning_rate, "training diverged; lower it")
            on_progress(progress)
        if last:
            return progress
    raise AssertionError("batches never end")


def _rate(step: int, fraction: float, spec: TrainSpec) -> float:
    """Linear warm-up, then cosine to 2 % of the peak."""
    warm = min(1.0, step / max(1, spec.warmup_steps))
    return warm * (0.02 + 0.98 * (1 + math.cos(math.pi * min(fraction, 1.0))) / 2)
