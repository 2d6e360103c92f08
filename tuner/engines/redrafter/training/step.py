"""One training step: unroll the drafter from every position of a batch and compare."""

from __future__ import annotations

import torch
from torch import Tensor

from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch import Batch
from tuner.engines.redrafter.training.forward import read_rows
from tuner.engines.redrafter.training.loss import distillation_loss, mixed_targets


def train_step(
    base: Llama, drafter: Drafter, batch: Batch, soft_share: float, horizon_decay: float
) -> tuple[Tensor, Tensor]:
    """Return the loss of a batch and its mean by drafted position [draft_len] (no gradient)."""
    draft_len = drafter.config.trained_draft_len
    with torch.no_grad():
        hidden, context = read_rows(base, batch.tokens, drafter.config.context_layers)
        hidden, context = hidden.flatten(0, 1), context.flatten(0, 1)
        head = base.lm_head.weight[drafter.draft_vocab].float()
        targets = mixed_targets(hidden.float() @ head.T, soft_share).to(hidden.dtype)
        weights = _weights(drafter, batch, horizon_decay)
    flat = batch.tokens.flatten()
    with torch.autocast(flat.device.type, dtype=torch.bfloat16, enabled=flat.is_cuda):
        exits = unroll(base, drafter, context, flat, batch.positions, draft_len)
    rows = torch.cat([batch.positions + k for k in range(1, draft_len + 1)])
    loss, each = distillation_loss(
        exits, drafter.head.weight, targets, rows.clamp_(max=len(flat) - 1), weights.flatten()
    )
    means = (each.view_as(weights) * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
    return loss, means


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


def _weights(drafter: Drafter, batch: Batch, horizon_decay: float) -> Tensor:
    """Weights [draft_len, P] summing to 1: zero past the answer and outside the vocabulary."""
    flat = batch.tokens.flatten()
    known = torch.zeros(drafter.config.vocab_size, dtype=torch.bool, device=flat.device)
    known[drafter.draft_vocab] = True
    weights = []
    for k in range(1, drafter.config.trained_draft_len + 1):
        target = batch.positions + 1 + k
        inside = target <= batch.last
        usable = inside & known[flat[target.clamp(max=len(flat) - 1)]]
        weights.append(usable.float() * horizon_decay ** (k - 1))
    stacked = torch.stack(weights)
    return stacked / stacked.sum().clamp(min=1e-9)
