"""What learns: a drafter of any kind, as the training loop sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import torch
from torch import Tensor, nn

from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.drafters.base import DraftMethod
from tuner.engines.redrafter.training.batch import Batch
from tuner.engines.redrafter.training.step import StepLoss


class Trainee(ABC):
    """A kind of drafter says what its weights, its loss and its files are."""

    network: nn.Module  # what of it asks for gradients learns
    draft_len: int  # tokens that a step compares at the end of the training
    draft_vocab: Tensor | None = None  # tokens that it can propose; None: all
    recurrent: Drafter | None = None  # set if all it knows of the text is one hidden state

    @abstractmethod
    def compare(self, batch: Batch, fraction: float, chance: torch.Generator) -> StepLoss:
        """Compare with the base model after `fraction` of the training."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the drafter into `folder`, each file whole. Raises StorageError or OSError."""

    @abstractmethod
    def serving(self) -> DraftMethod:
        """Return a copy that drafts, in the precision of serving."""
