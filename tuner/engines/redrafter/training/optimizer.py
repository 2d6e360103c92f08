"""How a drafter's weights follow its loss: AdamW, a clipped gradient, a warm-up and a cosine."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn


def adamw(weights: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.AdamW:
    """Return the optimizer of `weights`; `update` gives it the learning rate of every step."""
    return torch.optim.AdamW(weights, betas=(0.9, 0.99), weight_decay=0.01, fused=fused)


def learning_rate(peak: float, step: int, fraction: float, warmup_steps: int) -> float:
    """Return that of a step: linear warm-up, then cosine to 2 % of the peak at fraction 1."""
    warm = min(1.0, step / max(1, warmup_steps))
    return peak * (warm * (0.02 + 0.98 * (1 + math.cos(math.pi * min(fraction, 1.0))) / 2))


def update(optimizer: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
    """Go one step down the gradient of `loss`, whose norm is clipped at 1."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss.backward()
    nn.utils.clip_grad_norm_([w for g in optimizer.param_groups for w in g["params"]], 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
