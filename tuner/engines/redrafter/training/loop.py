"""The training loop: learn, report, measure, keep.

Every `report_every` steps leave a row of progress. Acceptance is measured at some of these, and
then the drafter is kept if it is the best so far, and now and then a checkpoint.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch import Batch, BatchReader
from tuner.engines.redrafter.training.checkpoint import (
    CHECKPOINT_FILE,
    Learner,
    Place,
    save_checkpoint,
)
from tuner.engines.redrafter.training.held_out import HeldOut
from tuner.engines.redrafter.training.optimizer import Budget, Step, adamw, descend
from tuner.engines.redrafter.training.progress import TrainRow, read_progress, write_progress
from tuner.engines.redrafter.training.spec import LoopSpec
from tuner.engines.redrafter.training.step import StepLoss
from tuner.engines.redrafter.training.trainee import Trainee
from tuner.errors import BadInput

OnProgress = Callable[[TrainRow], None]


def new_learner(spec: LoopSpec, network: nn.Module) -> Learner:
    """Return what learning changes, before its first step."""
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    optimizer = adamw(weights, fused=spec.device != "cpu")
    return Learner(network, optimizer, torch.Generator().manual_seed(spec.seed))


class TrainingLoop:
    """One training, from a place in it to its end. `rows` is what was reported so far."""

    def __init__(
        self,
        spec: LoopSpec,
        base: Llama,
        trainee: Trainee,
        learner: Learner,
        held_out: HeldOut,
        place: Place,
        on_progress: OnProgress,
    ) -> None:
        self.spec, self.base, self.trainee = spec, base, trainee
        self.learner, self.place = learner, place
        self.held_out, self.on_progress = held_out, on_progress
        self.rows = [row for row in read_progress(spec.out) if row.step <= place.step]
        self.began = time.monotonic() - place.seconds
        self.since_report: list[StepLoss] = []
        self.saved_step, self.saved_at = place.step, time.monotonic()

    def run(self, reader: BatchReader) -> bool:
        """Train to the end; return whether it stopped early."""
        spec, place = self.spec, self.place
        budget = Budget(
            spec.max_steps, spec.max_seconds, spec.learning_rate, spec.warmup_steps, self.began
        )
        for step in descend(self.learner.optimizer, reader, self._loss, budget, place.step):
            place.step, place.batches_read = step.number, reader.batches_read
            last = step.fraction >= 1
            if last or place.step % spec.report_every == 0:
                row = self._row(step, last)
                self._keep(row, last)
                self.on_progress(row)
                if last or 0 < spec.patience <= place.evaluations_since_best:
                    (spec.out / CHECKPOINT_FILE).unlink(missing_ok=True)
                    return not last
        raise AssertionError("batches never end")

    def _loss(self, batch: Batch, fraction: float) -> Tensor:
        result = self.trainee.compare(batch, fraction, self.learner.chance)
        self.place.positions += len(batch.positions)
        self.since_report.append(replace(result, loss=result.loss.detach()))
        return result.loss

    def _row(self, step: Step, last: bool) -> TrainRow:
        """Sum up the steps since the last row, and measure acceptance where it is due."""
        steps, self.since_report = self.since_report, []
        stage = steps[-1].stage
        loss = float(torch.stack([step.loss for step in steps]).mean())
        if not math.isfinite(loss):
            raise self._diverged(loss)
        measured = last or self.place.step % self.spec.evaluate_every == 0
        acceptance = self.held_out.acceptance_length(self.trainee.serving()) if measured else None
        self.place.seconds = time.monotonic() - self.began
        return TrainRow(
            step=self.place.step,
            stage=stage.number,
            draft_len=stage.draft_len,
            fraction=step.fraction,
            seconds=self.place.seconds,
            positions=self.place.positions,
            learning_rate=step.rate,
            loss=loss,
            loss_by_draft=_means([step.by_draft for step in steps], stage.draft_len),
            top1_by_draft=_means([step.top1_by_draft for step in steps], stage.draft_len),
            acceptance_length=acceptance,
        )

    def _keep(self, row: TrainRow, last: bool) -> None:
        """Write the row, and after a measure the drafter if it is the best, and a checkpoint."""
        spec, place = self.spec, self.place
        self.rows.append(row)
        write_progress(spec.out, self.rows)
        if not last and row.step % spec.evaluate_every:
            return
        if row.acceptance_length is None:
            self.trainee.save(spec.out)
        elif row.acceptance_length >= (place.best_acceptance or 0):
            place.best_acceptance, place.evaluations_since_best = row.acceptance_length, 0
            self.trainee.save(spec.out)
        elif row.draft_len == self.trainee.draft_len:
            place.evaluations_since_best += 1
        if not last and time.monotonic() - self.saved_at >= spec.checkpoint_seconds:
            save_checkpoint(spec, self.learner, place)
            self.saved_step, self.saved_at = place.step, time.monotonic()

    def _diverged(self, loss: float) -> BadInput:
        if not all(bool(weight.isfinite().all()) for weight in self.base.parameters()):
            return BadInput(
                "model", str(self.spec.model_dir), "holds weights that are not finite; get it again"
            )
        saved = self.saved_step
        kept = f"the checkpoint of step {saved} is kept" if saved else "no checkpoint was due yet"
        return BadInput(
            "learning_rate",
            self.spec.learning_rate,
            f"the loss is {loss} by step {self.place.step}: training diverged and has stopped; "
            f"{kept}. Start again with a lower one",
        )


def _means(by_draft: Sequence[torch.Tensor], draft_len: int) -> list[float]:
    """Mean of every drafted position over the steps that trained it."""
    columns = [[step[k] for step in by_draft if len(step) > k] for k in range(draft_len)]
    return torch.stack([torch.stack(column).mean() for column in columns]).tolist()
