"""Measure on the training answers what tells good training from bad."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch import Batch, BatchReader
from tuner.engines.redrafter.training.forward import read_rows
from tuner.engines.redrafter.training.generate import ChatFrame
from tuner.engines.redrafter.training.progress import TrainRow
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.engines.redrafter.training.spec import TrainSpec
from tuner.engines.redrafter.training.step import unroll
from tuner.engines.redrafter.training.verdict import Evidence
from tuner.workloads.tokenizer import HFTokenizer

_POSITIONS = 2048


@torch.no_grad()
def gather_evidence(
    spec: TrainSpec,
    base: Llama,
    drafter: Drafter,
    rows: AnswerRows,
    progress: Sequence[TrainRow],
) -> Evidence:
    """Look at up to 2,048 positions of the training answers, and at the course of the training."""
    device = base.norm.weight.device
    reader = BatchReader(rows, spec.tokens_per_step, spec.seed + 1, device)
    sample = _Sample(base, drafter, next(iter(reader)))
    counts = rows.count_answer_tokens(base.config.vocab_size)
    held = counts[drafter.draft_vocab.cpu()].sum() / counts.sum()
    measured = [row.acceptance_length for row in progress if row.acceptance_length is not None]
    own = torch.arange(len(sample.positions), device=device)
    shuffled = own.roll(len(own) // 2 + 1)
    return Evidence(
        acceptance_length=max(measured, default=None),
        framed_prompts=_framed(spec, rows),
        base_agreement=float(sample.agrees.float().mean()),
        base_loss=float(sample.loss.mean()),
        chance_loss=math.log(base.config.vocab_size),
        top1=sample.top1(sample.positions),
        top1_shuffled=sample.top1(sample.positions[shuffled]),
        top1_shifted=max(sample.top1(sample.positions + move) for move in (-1, 1)),
        vocab_coverage=float(held),
        loss_fall=_loss_fall(progress),
        steps=progress[-1].step,
    )


class _Sample:
    """Positions of one batch, what the base model says there and what the drafter does."""

    def __init__(self, base: Llama, drafter: Drafter, batch: Batch) -> None:
        self.base, self.drafter = base, drafter
        self.flat = batch.tokens.flatten()
        inside = batch.positions > 0
        self.positions = batch.positions[inside][:_POSITIONS]
        hidden, context = read_rows(base, batch.tokens, drafter.config.context_layers)
        self.hidden, self.context = hidden.flatten(0, 1), context.flatten(0, 1)
        logits = base.logits(self.hidden[self.positions]).float()
        token = self.flat[self.positions + 1]
        self.agrees = logits.argmax(-1) == token
        self.loss = torch.nn.functional.cross_entropy(logits, token, reduction="none")
        self.choice = base.logits(self.hidden[self.positions + 1]).argmax(-1)

    def top1(self, context_at: Tensor) -> float:
        """Share of first drafted tokens that are the base model's choice, contexts from there."""
        context = self.context.clone()
        context[self.positions] = self.context[context_at]
        with torch.autocast(self.flat.device.type, torch.bfloat16, enabled=self.flat.is_cuda):
            exits = unroll(self.base, self.drafter, context, self.flat, self.positions, 1)
            best = self.drafter.head(exits).argmax(-1)
        return float((self.drafter.draft_vocab[best] == self.choice).float().mean())


def _framed(spec: TrainSpec, rows: AnswerRows) -> float | None:
    """Share of the first thousand prompts that end as the chat template lets an answer begin."""
    if HFTokenizer(spec.model_dir).template == "none":
        return None
    after = ChatFrame(spec.model_dir).after
    prompts = [rows.prompt(number) for number in range(min(len(rows), 1000))]
    return sum(prompt[-len(after) :] == after for prompt in prompts) / len(prompts)


def _loss_fall(progress: Sequence[TrainRow]) -> float | None:
    """Relative fall of the loss from the middle third to the last, one stage only."""
    final = (progress[-1].stage, progress[-1].draft_len)
    losses = [row.loss for row in progress if (row.stage, row.draft_len) == final]
    third = len(losses) // 3
    if third < 2:
        return None
    before, after = sum(losses[-2 * third : -third]), sum(losses[-third:])
    return (before - after) / before if before > 0 else 0.0
