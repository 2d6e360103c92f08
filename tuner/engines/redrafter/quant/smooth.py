"""By how much to rescale a linear layer's input channels before its weights are rounded.

SmoothQuant (Xiao et al., arXiv 2211.10438) moves half of the activations' outliers, in the
logarithm, into the weights. AWQ (Lin et al., arXiv 2306.00978) protects the weights that meet
large activations: it tries powers of their mean size and keeps the one with the least error.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tuner.engines.redrafter.quant.calibrate import Activations
from tuner.engines.redrafter.quant.fold import Fold
from tuner.engines.redrafter.quant.int4 import from_groups, group_size_of, round_groups

_SMOOTHING = 0.5
_AWQ_POWERS = 20
_SMALLEST = 1e-5


def smoothing_scale(fold: Fold, seen: Activations) -> Tensor:
    """Return SmoothQuant's scale [in] of a layer."""
    weight = fold.linear.weight.float().abs().amax(dim=0).clamp(min=_SMALLEST)
    peak = fold.shared(seen.peak).clamp(min=_SMALLEST)
    return fold.shared(peak**_SMOOTHING / weight ** (1 - _SMOOTHING)).clamp(min=_SMALLEST)


def awq_scale(fold: Fold, seen: Activations) -> Tensor:
    """Return the scale [in] under which 4-bit rounding changes the layer's output least."""
    weight = fold.linear.weight.float()
    group_size = group_size_of(weight.shape[1])
    mean = fold.shared(seen.mean).clamp(min=_SMALLEST)
    sample = seen.sample.float()
    best_error, best = float("inf"), torch.ones_like(mean)
    for power in range(_AWQ_POWERS):
        scale = mean ** (power / _AWQ_POWERS)
        scale = scale / (scale.amax() * scale.amin()).sqrt()
        rounded = from_groups(*round_groups(weight * scale, group_size)) / scale
        error = (sample @ (rounded - weight).t()).square().mean().item()
        if error < best_error:
            best_error, best = error, scale
    return best
