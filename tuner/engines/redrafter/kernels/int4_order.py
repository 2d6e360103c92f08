"""The order in which our INT4 kernels want the codes, one for every number of rows.

A group of inputs is cut in four quarters. Half-word c of the group holds input c of each quarter,
the first in its lowest bits: four inputs of one half-word are a quarter apart, and those that
neighbouring half-words hold at the same bits are neighbours in the activations.
"""

from __future__ import annotations

import torch
from torch import Tensor


def ordered(codes: Tensor, group_size: int) -> Tensor:
    """Pack uint8 codes [out, in] of 0 to 15 into int32 [out, in / 8]."""
    quarters = codes.unflatten(1, (-1, 4, group_size // 4))
    low = quarters[:, :, 0] | (quarters[:, :, 1] << 4)
    high = quarters[:, :, 2] | (quarters[:, :, 3] << 4)
    return torch.stack((low, high), dim=-1).flatten(1).view(torch.int32)


def scale_and_zero(scale: Tensor, zero: Tensor) -> Tensor:
    """Join scales and zeros [out, groups] in int32: a bf16 scale above a zero of 16 bits."""
    return scale.bfloat16().view(torch.int16).int() << 16 | zero.int()
