"""How a drafter's weights follow its loss: AdamW, a clipped gradient, a warm-up and a cosine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuner.engines.redrafter.training.batch import Batch


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to learn, and how fast: until `max_steps` or `max_seconds`, whichever is first."""

    max_steps: int
    max_seconds: float
    learning_rate: float  # at the peak
    warmup_steps: int
    began: float  # on the monotonic clock

    def used(self, steps: int) -> float:
        """Return the fraction that is used up after so many steps, now."""
        seconds = time.monotonic() - self.began
        return min(1.0, max(steps / self.max_steps, seconds / self.max_seconds))

    def rate(self, step: int, fraction: float) -> float:
        """Return that of a step: linear warm-up, then cosine to 2 % of the peak at fraction 1."""
        warm = min(1.0, step / max(1, self.warmup_steps))
        return self.learning_rate * (warm * (0.02 + 0.98 * (1 + math.cos(math.pi * fraction)) / 2))


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was done; `fraction` of the budget is used up, all of it after the last."""

    number: int
    fraction: float
    rate: float
    loss: Tensor  # of its batch, before the step; without gradient


def adamw(weights: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.AdamW:
    """Return the optimizer of `weights`; `descend` gives it the learning rate of every step."""
    return torch.optim.AdamW(weights, betas=(0.9, 0.99), weight_decay=0.01, fused=fused)


def descend(
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Batch],
    loss_of: Callable[[Batch, float], Tensor],
    budget: Budget,
    done: int = 0,
) -> Iterator[Step]:
    """Go down the gradient, a step a batch, until the budget is used up.

    Args:
        optimizer: of the weights that learn.
        batches: endless.
        loss_of: the loss of a batch, told the fraction of the budget that is used up before it.
        budget: when to end.
        done: steps that were done earlier.
    """
    for number, batch in enumerate(batches, start=done + 1):
        loss = loss_of(batch, budget.used(number - 1))
        fraction = budget.used(number)
        rate = budget.rate(number, fraction)
        _update(optimizer, loss, rate)
        yield Step(number, fraction, rate, loss.detach())
        if fraction >= 1:
            return


def _update(optimizer: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
    """Go one step down the gradient of `loss`, whose norm is clipped at 1."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss.backward()
    nn.utils.clip_grad_norm_([w for g in optimizer.param_groups for w in g["params"]], 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
