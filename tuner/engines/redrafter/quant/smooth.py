"""By how much to rescale a linear layer's input channels before its weights are rounded.

SmoothQuant (Xiao et al., arXiv 2211.10438) moves a share of the activations' outliers, in the
logarithm, into the weights. AWQ (Lin et al., arXiv 2306.00978) protects the weights that meet
large activations, by a power of their mean size. Which share or power is tried out on rows that the
layer has read: the one with the least error of the output is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor

from tuner.engines.redrafter.quant.calibrate import Activations
from tuner.engines.redrafter.quant.fold import Fold
from tuner.engines.redrafter.quant.int4 import from_groups, group_size_of, round_groups
from tuner.engines.redrafter.quant.int8 import Int8Linear, scale_tokens

_SHARES = (0.4, 0.5, 0.6, 0.7, 0.8)
_POWERS = tuple(step / 20 for step in range(20))
_SMALLEST = 1e-5
Product = Callable[[Tensor, Tensor], Tensor]
"""(inputs [rows, in], weight [out, in]) -> the output [rows, out] when both are rounded."""


def smoothing_scale(fold: Fold, seen: Activations) -> Tensor:
    """Return SmoothQuant's scale [in] of a layer."""
    weight = fold.shared(fold.linear.weight.float().abs().amax(dim=0)).clamp(min=_SMALLEST)
    peak = fold.shared(seen.peak).clamp(min=_SMALLEST)
    return _best((peak**share / weight ** (1 - share) for share in _SHARES), fold, seen, _w8a8)


def awq_scale(fold: Fold, seen: Activations) -> Tensor:
    """Return AWQ's scale [in] of a layer. Raises BadInput where no group divides it."""
    group_size_of(fold.linear.in_features)
    mean = fold.shared(seen.mean).clamp(min=_SMALLEST)
    powers = (mean**power for power in _POWERS)
    return _best((p / (p.amax() * p.amin()).sqrt() for p in powers), fold, seen, _w4a16)


def _best(scales: Iterable[Tensor], fold: Fold, seen: Activations, product: Product) -> Tensor:
    """Return the scale under which rounding changes the layer's output least."""
    weight, rows = fold.linear.weight.float(), seen.sample.float()
    exact = rows @ weight.t()
    errors = {}
    for scale in scales:
        scale = scale.clamp(min=_SMALLEST)
        error = (product(rows / scale, weight * scale) - exact).square().mean()
        errors[float(error)] = scale
    return errors[min(errors)]


def _w8a8(rows: Tensor, weight: Tensor) -> Tensor:
    scaled, scale = scale_tokens(rows)
    return scaled.round() * scale @ Int8Linear.from_float(weight).dequantized().t()


def _w4a16(rows: Tensor, weight: Tensor) -> Tensor:
    rounded = round_groups(weight, group_size_of(weight.shape[1]))
    return rows @ from_groups(*rounded).t()
