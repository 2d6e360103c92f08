"""One training step: unroll the drafter from every position of a batch and compare."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch import Batch
from tuner.engines.redrafter.training.beam_contrast import beam_contrast
from tuner.engines.redrafter.training.curriculum import Curriculum, Stage
from tuner.engines.redrafter.training.forward import read_rows
from tuner.engines.redrafter.training.loss import (
    LOGITS_AT_ONCE,
    Objective,
    distillation_loss,
    distillation_targets,
)


@dataclass(frozen=True, slots=True)
class StepLoss:
    """Loss of a batch, and its means by drafted position [draft_len] without gradient."""

    loss: Tensor
    stage: Stage
    by_draft: Tensor
    top1_by_draft: Tensor  # share of positions where the base model's choice is the likeliest

    @classmethod
    def of(cls, loss: Tensor, each: Tensor, hit: Tensor, weights: Tensor, stage: Stage) -> StepLoss:
        """Sum up what `distillation_loss` gives, by drafted position: weights [draft_len, P]."""
        total = weights.sum(1).clamp(min=1e-9)
        by_draft, top1 = ((x.view_as(weights) * weights).sum(1) / total for x in (each, hit))
        return cls(loss, stage, by_draft, top1)


def train_step(
    base: Llama,
    drafter: Drafter,
    batch: Batch,
    objective: Objective,
    stage: Stage,
    curriculum: Curriculum,
    chance: torch.Generator,
) -> StepLoss:
    """Compare at every drafted position; in stage 3 also search beams from some of them."""
    flat = batch.tokens.flatten()
    with torch.no_grad():
        hidden, context = read_rows(base, batch.tokens, drafter.config.context_layers)
        hidden, context = hidden.flatten(0, 1), context.flatten(0, 1)
        rank = draft_ranks(drafter, flat)
        text = rank.roll(-1).clamp(min=0)
        head = base.lm_head.weight[drafter.draft_vocab].float()
        targets = distillation_targets(hidden, head, text, objective)
        weights = draft_weights(rank, batch, objective.horizon_decay, stage.draft_len)
    rows = torch.cat([batch.positions + k for k in range(1, stage.draft_len + 1)])
    with torch.autocast(flat.device.type, dtype=torch.bfloat16, enabled=flat.is_cuda):
        exits = unroll(base, drafter, context, flat, batch.positions, stage.draft_len)
    loss, each, hit = distillation_loss(
        exits,
        drafter.head.weight,
        targets,
        rows.clamp_(max=len(flat) - 1),
        weights.flatten(),
        objective,
    )
    if stage.number == 3:
        loss = loss + curriculum.beam_weight * _searched(
            base, drafter, context, batch, stage, curriculum, chance
        )
    return StepLoss.of(loss, each, hit, weights, stage)


def unroll(
    base: Llama, drafter: Drafter, context: Tensor, flat: Tensor, positions: Tensor, draft_len: int
) -> Tensor:
    """Run the drafter from every one of `positions` [P]; return [draft_len * P, exit_dim]."""
    embedded = base.embed_tokens(flat)
    p, d = drafter.start(context[positions], embedded[positions + 1])
    state = torch.zeros_like(d)
    exits = []
    for k in range(1, draft_len + 1):
        # Past a row's end the token does not matter: such places weigh nothing.
        fed = (positions + k).clamp(max=len(flat) - 1)
        state = drafter.next_state(embedded[fed], state, d)
        exits.append(drafter.exit(p, state))
    return torch.cat(exits)


def _searched(
    base: Llama,
    drafter: Drafter,
    context: Tensor,
    batch: Batch,
    stage: Stage,
    curriculum: Curriculum,
    chance: torch.Generator,
) -> Tensor:
    """Beam loss of some positions of the batch."""
    flat = batch.tokens.flatten()
    beams = curriculum.beam_width + 1  # the true path beside them
    most = LOGITS_AT_ONCE // (beams * drafter.config.draft_vocab_size)
    count = max(1, min(curriculum.beam_positions, most))
    drawn = torch.randperm(len(batch.positions), generator=chance)[:count].to(flat.device)
    positions, last = batch.positions[drawn], batch.last[drawn]
    columns = positions[:, None] + torch.arange(1, stage.draft_len + 2, device=flat.device)
    truth = flat[columns.clamp(max=len(flat) - 1)].masked_fill(columns > last[:, None], -1)
    with torch.autocast(flat.device.type, dtype=torch.bfloat16, enabled=flat.is_cuda):
        return beam_contrast(
            drafter, base.embed_tokens, context[positions], truth, curriculum.beam_width
        )


def draft_ranks(drafter: Drafter, flat: Tensor) -> Tensor:
    """Return the draft vocabulary index of every token, -1 outside it."""
    rank = torch.full((drafter.config.vocab_size,), -1, device=flat.device)
    rank[drafter.draft_vocab] = torch.arange(len(drafter.draft_vocab), device=flat.device)
    return rank[flat]


def draft_weights(rank: Tensor, batch: Batch, horizon_decay: float, draft_len: int) -> Tensor:
    """Weights [draft_len, P] summing to 1: zero past the answer and outside the vocabulary."""
    weights = []
    for k in range(1, draft_len + 1):
        target = batch.positions + 1 + k
        usable = (target <= batch.last) & (rank[target.clamp(max=len(rank) - 1)] >= 0)
        weights.append(usable.float() * horizon_decay ** (k - 1))
    stacked = torch.stack(weights)
    return stacked / stacked.sum().clamp(min=1e-9)
