"""INT4 weights as bf16 ones, for products of so many rows that unpacking once is the least work."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 8


def widened(codes: Tensor, scale_and_zero: Tensor) -> Tensor:
    """Return the weights [out, in] in bf16.

    Args:
        codes: int32 [out, in / 8] in the order of `int4_order.ordered`.
        scale_and_zero: int32 [out, groups], `int4_order.scale_and_zero`.
    """
    (outputs, words), groups = codes.shape, scale_and_zero.shape[1]
    out = torch.empty((outputs, 8 * words), device=codes.device, dtype=torch.bfloat16)
    _widen[(triton.cdiv(outputs, ROWS), groups)](
        codes.view(torch.int16),
        scale_and_zero,
        out,
        outputs,
        GROUPS=groups,
        QUARTER=2 * words // groups,
        ROWS=ROWS,
        num_warps=1,
    )
    return out


@triton.jit
def _widen(
    half_ptr,
    scale_ptr,
    out_ptr,
    outputs,
    GROUPS: tl.constexpr,
    QUARTER: tl.constexpr,
    ROWS: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    group, at = tl.program_id(1), tl.arange(0, QUARTER)[None, :]
    real = row < outputs
    halves = tl.load(half_ptr + (row * GROUPS + group) * QUARTER + at, mask=real, other=0)
    scale_zero = tl.load(scale_ptr + row * GROUPS + group, mask=real, other=0)
    scale = (scale_zero & -65536).to(tl.float32, bitcast=True)
    for quarter in tl.static_range(4):
        code = ((halves >> (4 * quarter)) & 15).to(tl.int32) - (scale_zero & 15)
        place = (row * GROUPS + group) * (4 * QUARTER) + quarter * QUARTER + at
        tl.store(out_ptr + place, code.to(tl.float32) * scale, mask=real)
