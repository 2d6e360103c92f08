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
from tuner.engines.redrafter.training.spec import LoopSpec
from tuner.engines.redrafter.training.step import unroll
from tuner.engines.redrafter.training.trainee import Trainee
from tuner.engines.redrafter.training.verdict import Evidence, Reading
from tuner.workloads.tokenizer import HFTokenizer

_POSITIONS = 2048


@torch.no_grad()
def gather_evidence(
    spec: LoopSpec,
    base: Llama,
    trainee: Trainee,
    rows: AnswerRows,
    progress: Sequence[TrainRow],
) -> Evidence:
    """Look at up to 2,048 positions of the training answers, and at the course of the training."""
    device = base.norm.weight.device
    batch = next(iter(BatchReader(rows, spec.tokens_per_step, spec.seed + 1, device)))
    positions = batch.positions[batch.positions > 0][:_POSITIONS]
    recurrent = trainee.recurrent
    layers = recurrent.config.context_layers if recurrent is not None else ()
    hidden, context = (x.flatten(0, 1) for x in read_rows(base, batch.tokens, layers))
    logits = base.logits(hidden[positions]).float()
    token = batch.tokens.flatten()[positions + 1]
    choice = base.logits(hidden[positions + 1]).argmax(-1)
    reading = None
    if recurrent is not None:
        reading = _reading(base, recurrent, batch, context, positions, choice)
    measured = [row.acceptance_length for row in progress if row.acceptance_length is not None]
    return Evidence(
        acceptance_length=max(measured, default=None),
        framed_prompts=_framed(spec, rows),
        base_agreement=float((logits.argmax(-1) == token).float().mean()),
        base_loss=float(torch.nn.functional.cross_entropy(logits, token)),
        chance_loss=math.log(base.config.vocab_size),
        reading=reading,
        vocab_coverage=_coverage(trainee.draft_vocab, rows, base.config.vocab_size),
        loss_fall=_loss_fall(progress),
        steps=progress[-1].step,
    )


def _reading(
    base: Llama, drafter: Drafter, batch: Batch, context: Tensor, positions: Tensor, choice: Tensor
) -> Reading:
    """Ask for the first drafted tokens after `positions`, with the right `context` and wrong ones.

    `choice` is what the base model would write there.
    """
    flat = batch.tokens.flatten()

    def top1(context_at: Tensor) -> float:
        moved = context.clone()
        moved[positions] = context[context_at]
        with torch.autocast(flat.device.type, torch.bfloat16, enabled=flat.is_cuda):
            exits = unroll(base, drafter, moved, flat, positions, 1)
            best = drafter.head(exits).argmax(-1)
        return float((drafter.draft_vocab[best] == choice).float().mean())

    return Reading(
        top1=top1(positions),
        top1_shuffled=top1(positions.roll(len(positions) // 2 + 1)),
        top1_shifted=max(top1(positions + move) for move in (-1, 1)),
    )


def _coverage(draft_vocab: Tensor | None, rows: AnswerRows, vocab_size: int) -> float:
    """Share of answer tokens that can be drafted."""
    if draft_vocab is None:
        return 1.0
    counts = rows.count_answer_tokens(vocab_size)
    return float(counts[draft_vocab.cpu()].sum() / counts.sum())


def _framed(spec: LoopSpec, rows: AnswerRows) -> float | None:
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
