"""Teach a trained recurrent drafter to look back.

Its new part begins by adding nothing, so training starts from what the recurrent drafter can do and
both learn on. Loss and data are those of the recurrent drafter.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuner.engines.redrafter.checkpoint import load_drafter
from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.drafters.local_attention import LocalAttentionDraft
from tuner.engines.redrafter.drafters.look_back import (
    LookBack,
    LookBackConfig,
    save_local_attention,
)
from tuner.engines.redrafter.linear import apply_compute
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch import Batch
from tuner.engines.redrafter.training.curriculum import Stage
from tuner.engines.redrafter.training.forward import read_rows, serving_compute
from tuner.engines.redrafter.training.loop import OnProgress
from tuner.engines.redrafter.training.loss import Objective, distillation_loss, distillation_targets
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.engines.redrafter.training.spec import LoopSpec
from tuner.engines.redrafter.training.step import StepLoss, draft_ranks, draft_weights
from tuner.engines.redrafter.training.train import TrainReport, train
from tuner.engines.redrafter.training.trainee import Trainee


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAttentionSpec(LoopSpec):
    """Which recurrent drafter is to look back, and how far."""

    recurrent_dir: Path
    look_back: LookBackConfig = field(default_factory=LookBackConfig)


class LocalAttentionTrainee(Trainee):
    """Begins as the recurrent drafter. Raises BadInput where that does not fit the base model."""

    def __init__(self, spec: LocalAttentionSpec, base: Llama, rows: AnswerRows) -> None:
        self.spec, self.base = spec, base
        device = base.norm.weight.device
        self.drafter = load_drafter(spec.recurrent_dir, base.config).float().to(device)
        self.look_back = LookBack(spec.look_back, self.drafter.config).to(device)
        nn.init.zeros_(self.look_back.output.weight)
        self.network = nn.ModuleList((self.drafter.requires_grad_(), self.look_back))
        self.draft_len = self.drafter.config.trained_draft_len
        self.draft_vocab = self.drafter.draft_vocab

    def compare(self, batch: Batch, fraction: float, chance: torch.Generator) -> StepLoss:
        """Compare every draft that begins in the batch."""
        return draft_loss(self.base, self.drafter, self.look_back, batch, self.spec.objective)

    def save(self, folder: Path) -> None:
        """Write a local-attention directory."""
        save_local_attention(self.drafter, self.look_back, folder)

    def serving(self) -> LocalAttentionDraft:
        """Return a copy that drafts."""
        compute = serving_compute(self.base.norm.weight.device)
        drafter, look_back = copy.deepcopy((self.drafter, self.look_back))
        return LocalAttentionDraft(
            apply_compute(drafter, compute),
            apply_compute(look_back, compute),
            self.base.embed_tokens,
            compute.activation_dtype,
        )


def train_local_attention(
    spec: LocalAttentionSpec, on_progress: OnProgress = lambda row: None, resume: bool = False
) -> TrainReport:
    """Train on from a recurrent drafter, as `train` does."""
    return train(spec, partial(LocalAttentionTrainee, spec), on_progress, resume)


def draft_loss(
    base: Llama, recurrent: Drafter, look_back: LookBack, batch: Batch, objective: Objective
) -> StepLoss:
    """Compare with the base model at every position of every draft that begins in the batch."""
    flat = batch.tokens.flatten()
    with torch.no_grad():
        hidden, context = read_rows(base, batch.tokens, recurrent.config.context_layers)
        rank = draft_ranks(recurrent, flat)
        head = base.lm_head.weight[recurrent.draft_vocab].float()
        text = rank.roll(-1).clamp(min=0)
        targets = distillation_targets(hidden.flatten(0, 1), head, text, objective)
        draft_len = recurrent.config.trained_draft_len
        ahead = torch.arange(1, draft_len + 1, device=flat.device)
        rows = batch.positions + ahead.unsqueeze(1)  # [draft_len, P]
        weights = draft_weights(rank, batch, objective.horizon_decay, draft_len)
    with torch.autocast(flat.device.type, dtype=torch.bfloat16, enabled=flat.is_cuda):
        exits = unroll(base, recurrent, look_back, context, batch)
    rows = rows.clamp(max=len(flat) - 1).flatten()
    parts = distillation_loss(
        exits, recurrent.head.weight, targets, rows, weights.flatten(), objective
    )
    return StepLoss.of(*parts, weights, Stage(2, draft_len))


def unroll(
    base: Llama, recurrent: Drafter, look_back: LookBack, context: Tensor, batch: Batch
) -> Tensor:
    """Draft from every one of the batch's positions; return [draft_len * P, exit_dim].

    A draft sees the contexts [R, L, context_size] of its own row up to where it begins.
    """
    count, length = batch.tokens.shape
    draft_len = recurrent.config.trained_draft_len
    place = torch.arange(count * length, device=context.device)
    column = place % length
    rotation = look_back.rotation(length + draft_len).to(context)
    context = context.flatten(0, 1)
    keys, values = (
        x.unflatten(0, (count, length)).transpose(1, 2)
        for x in look_back.remember(context, rotation[column])
    )
    at, back = torch.arange(length, device=context.device), look_back.config.window
    seen = (at <= at.unsqueeze(1)) & (at > at.unsqueeze(1) - back)
    embedded = base.embed_tokens(batch.tokens.flatten()).to(context.dtype)
    # Past the end of a row the token does not matter: such places weigh nothing.
    fed = [embedded[(place + k).clamp(max=len(place) - 1)] for k in range(1, draft_len + 1)]
    p, d = recurrent.start(context, fed[0])
    state, exits = torch.zeros_like(d), []
    for k, token in enumerate(fed, start=1):
        state = recurrent.next_state(token, state, d)
        query = look_back.ask(p, state, rotation[column + k])
        query = query.unflatten(0, (count, length)).transpose(1, 2)
        found = F.scaled_dot_product_attention(query, keys, values, attn_mask=seen)
        looked = look_back.output(found.transpose(1, 2).flatten(0, 1).flatten(1)[batch.positions])
        exits.append(recurrent.exit(p[batch.positions] + looked, state[batch.positions]))
    return torch.cat(exits)
