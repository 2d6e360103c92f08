"""Train a drafter of any kind on answers that the base model wrote.

At every position of an answer the drafter is to say what the base model says there. A recurrent one
is started from the base model's hidden state at position t and unrolled over the true tokens t+1,
t+2, ... Hidden states and targets are computed for each batch anew and never stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from profiles.files import make_folder
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch import BatchReader
from tuner.engines.redrafter.training.batch_decode import Decoding
from tuner.engines.redrafter.training.checkpoint import CHECKPOINT_FILE, Place, load_checkpoint
from tuner.engines.redrafter.training.evidence import gather_evidence
from tuner.engines.redrafter.training.forward import load_frozen
from tuner.engines.redrafter.training.held_out import HeldOut, hold_out
from tuner.engines.redrafter.training.loop import OnProgress, TrainingLoop, new_learner
from tuner.engines.redrafter.training.recurrent import RecurrentTrainee
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.engines.redrafter.training.spec import LoopSpec, TrainSpec
from tuner.engines.redrafter.training.trainee import Trainee
from tuner.engines.redrafter.training.verdict import Verdict, judge
from tuner.errors import BadInput
from tuner.workloads.tokenizer import HFTokenizer


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What was done. `acceptance_length` is the best of the held-out measures."""

    steps: int
    positions: int
    seconds: float
    loss: float
    loss_by_draft: list[float]
    top1_by_draft: list[float]
    acceptance_length: float | None
    stopped_early: bool
    parameters: int
    vocab_coverage: float  # share of answer tokens that the draft vocabulary holds
    verdict: Verdict


def train_drafter(
    spec: TrainSpec, on_progress: OnProgress = lambda row: None, resume: bool = False
) -> TrainReport:
    """Train a recurrent drafter, as `train` does."""
    return train(spec, partial(RecurrentTrainee, spec), on_progress, resume)


def train(
    spec: LoopSpec,
    begin: Callable[[Llama, AnswerRows], Trainee],
    on_progress: OnProgress = lambda row: None,
    resume: bool = False,
) -> TrainReport:
    """Train and write a drafter directory, `progress.parquet` and, until done, a checkpoint.

    The drafter written is that of the longest acceptance on held-out prompts, the last one where
    there are none. A killed training goes on with `resume` from its last checkpoint; on a CPU, and
    ended by steps rather than seconds, its loss curve is that of a training never killed.

    Args:
        spec: how to train.
        begin: makes the untrained drafter of a base model and the answers to learn from.
        on_progress: told every row of progress.
        resume: go on from the checkpoint in `spec.out`.

    Raises:
        BadInput: data or shapes that do not fit the model, nothing to resume or something not
            resumed, or a loss that is not finite (the last checkpoint is kept).
    """
    check_folder(spec, resume)
    device = torch.device(spec.device)
    torch.manual_seed(spec.seed)
    rows, prompts = hold_out(AnswerRows.load(spec.data), spec.held_out_prompts, spec.seed)
    longest = max((len(prompt) for prompt in prompts), default=0) + spec.held_out_tokens
    base = load_frozen(spec.model_dir, device, max(longest, rows.longest))
    rows.check_tokens(base.config.vocab_size, spec.data)
    trainee = begin(base, rows)
    make_folder(spec.out)
    how = Decoding(spec.held_out_tokens, HFTokenizer(spec.model_dir).stop_token_ids)
    held_out = HeldOut(base, prompts, how, trainee.serving())
    learner = new_learner(spec, trainee.network)
    place = load_checkpoint(spec, learner) if resume else Place()
    training = TrainingLoop(spec, base, trainee, learner, held_out, place, on_progress)
    reader = BatchReader(rows, spec.tokens_per_step, spec.seed, device, place.batches_read)
    stopped = training.run(reader)
    last = training.rows[-1]
    evidence = gather_evidence(spec, base, trainee, rows, training.rows)
    return TrainReport(
        steps=last.step,
        positions=last.positions,
        seconds=last.seconds,
        loss=last.loss,
        loss_by_draft=last.loss_by_draft,
        top1_by_draft=last.top1_by_draft,
        acceptance_length=place.best_acceptance,
        stopped_early=stopped,
        parameters=sum(p.numel() for p in trainee.network.parameters()),
        vocab_coverage=evidence.vocab_coverage,
        verdict=judge(evidence),
    )


def check_folder(spec: LoopSpec, resume: bool) -> None:
    """Raise BadInput where `spec.out` holds a training and none is resumed, or the reverse."""
    unfinished = (spec.out / CHECKPOINT_FILE).exists()
    if unfinished and not resume:
        raise BadInput(
            "out", str(spec.out), "holds an unfinished training; resume it, or take another folder"
        )
    if resume and not unfinished:
        raise BadInput("out", str(spec.out), "holds no training to resume; start one without it")
