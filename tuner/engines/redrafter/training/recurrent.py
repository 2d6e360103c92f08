"""A recurrent drafter that learns, through the stages of the curriculum."""

from __future__ import annotations

import copy
from pathlib import Path

import torch

from tuner.engines.redrafter.checkpoint import save_drafter
from tuner.engines.redrafter.drafters.recurrent import RecurrentDraft
from tuner.engines.redrafter.linear import apply_compute
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch import Batch
from tuner.engines.redrafter.training.build import new_drafter
from tuner.engines.redrafter.training.curriculum import stage_at
from tuner.engines.redrafter.training.forward import serving_compute
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.engines.redrafter.training.spec import TrainSpec
from tuner.engines.redrafter.training.step import StepLoss, train_step
from tuner.engines.redrafter.training.trainee import Trainee


class RecurrentTrainee(Trainee):
    """Begins as `new_drafter` makes it. Raises BadInput as that does."""

    def __init__(self, spec: TrainSpec, base: Llama, rows: AnswerRows) -> None:
        self.spec, self.base, self.draft_len = spec, base, spec.draft_len
        self.network = self.recurrent = self.drafter = new_drafter(spec, base, rows)
        self.draft_vocab = self.drafter.draft_vocab

    def compare(self, batch: Batch, fraction: float, chance: torch.Generator) -> StepLoss:
        """Unroll the drafter from every position of the batch."""
        spec = self.spec
        stage = stage_at(fraction, spec.draft_len, spec.curriculum)
        return train_step(
            self.base, self.drafter, batch, spec.objective, stage, spec.curriculum, chance
        )

    def save(self, folder: Path) -> None:
        """Write a drafter directory."""
        save_drafter(self.drafter, folder)

    def serving(self) -> RecurrentDraft:
        """Return a copy that drafts."""
        compute = serving_compute(self.base.norm.weight.device)
        copied = apply_compute(copy.deepcopy(self.drafter), compute)
        return RecurrentDraft(copied, self.base.embed_tokens)
