"""Teach a trained recurrent drafter to look back.

Its new part begins by adding nothing, so training starts from what the recurrent drafter can do and
both learn on. Loss and data are those of the recurrent drafter.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuner.engines.redrafter.checkpoint import load_drafter
from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.drafters.look_back import (
    LookBack,
    LookBackConfig,
    save_local_attention,
)
from tuner.engines.redrafter.drafters.training_loop import LoopReport, LoopSpec, OnStep, run_loop
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch import Batch, BatchReader
from tuner.engines.redrafter.training.forward import load_frozen, read_rows
from tuner.engines.redrafter.training.loss import Objective, distillation_loss, distillation_targets
from tuner.engines.redrafter.training.rows import AnswerRows


def train_local_attention(
    model_dir: Path,
    recurrent_dir: Path,
    out: Path,
    config: LookBackConfig,
    spec: LoopSpec,
    on_step: OnStep = lambda step, loss: None,
) -> LoopReport:
    """Train on from the recurrent drafter in `recurrent_dir` and write the result to `out`.

    Raises:
        BadInput: a drafter or data that do not fit the model.
    """
    device = torch.device(spec.device)
    torch.manual_seed(spec.seed)
    rows = AnswerRows.load(spec.data)
    base = load_frozen(model_dir, device, rows.longest)
    rows.check_tokens(base.config.vocab_size, spec.data)
    recurrent = load_drafter(recurrent_dir, base.config).float().to(device)
    look_back = LookBack(config, recurrent.config).to(device)
    nn.init.zeros_(look_back.output.weight)

    def loss_of(batch: Batch) -> Tensor:
        return draft_loss(base, recurrent, look_back, batch, spec.objective)

    batches = BatchReader(rows, spec.tokens_per_step, spec.seed, device)
    both = nn.ModuleList((recurrent.requires_grad_(), look_back))
    report = run_loop(both, batches, loss_of, spec, on_step)
    save_local_attention(recurrent, look_back, out)
    return report


def draft_loss(
    base: Llama, recurrent: Drafter, look_back: LookBack, batch: Batch, objective: Objective
) -> Tensor:
    """Compare with the base model at every position of every draft that begins in the batch."""
    flat = batch.tokens.flatten()
    with torch.no_grad():
        hidden, context = read_rows(base, batch.tokens, recurrent.config.context_layers)
        rank = _ranks(recurrent, flat)
        head = base.lm_head.weight[recurrent.draft_vocab].float()
        text = rank.roll(-1).clamp(min=0)
        targets = distillation_targets(hidden.flatten(0, 1), head, text, objective)
        ahead = torch.arange(1, recurrent.config.trained_draft_len + 1, device=flat.device)
        rows = batch.positions + ahead.unsqueeze(1)  # [draft_len, P]
        weights = _weigh(rank, rows + 1, batch.last, objective.horizon_decay)
    with torch.autocast(flat.device.type, dtype=torch.bfloat16, enabled=flat.is_cuda):
        exits = unroll(base, recurrent, look_back, context, batch)
    rows = rows.clamp(max=len(flat) - 1).flatten()
    loss, *_ = distillation_loss(
        exits, recurrent.head.weight, targets, rows, weights.flatten(), objective
    )
    return loss


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


def _ranks(recurrent: Drafter, flat: Tensor) -> Tensor:
    """Return the draft vocabulary index of every token, -1 outside it."""
    rank = torch.full((recurrent.config.vocab_size,), -1, device=flat.device)
    rank[recurrent.draft_vocab] = torch.arange(len(recurrent.draft_vocab), device=flat.device)
    return rank[flat]


def _weigh(rank: Tensor, drafted: Tensor, last: Tensor, horizon_decay: float) -> Tensor:
    """Weights [draft_len, P] of the tokens to be drafted at positions `drafted`, summing to 1.

    Past the answer and outside the draft vocabulary they are zero.
    """
    usable = (drafted <= last) & (rank[drafted.clamp(max=len(rank) - 1)] >= 0)
    decay = horizon_decay ** torch.arange(len(drafted), device=rank.device)
    weights = usable * decay.unsqueeze(1).float()
    return weights / weights.sum().clamp(min=1e-9)
