"""What stands between the drafter's products, SiLU and sums, in one launch each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait

BLOCK = 1024


def add_silu(x: Tensor, y: Tensor) -> Tensor:
    """Return x + silu(y); both of one shape, contiguous."""
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    _add_silu[grid](x, y, out, x.numel(), BLOCK=BLOCK, num_warps=4, **overlapped(x.device))
    return out


def silu_of_sum(x: Tensor, y: Tensor, each: Tensor) -> Tensor:
    """Return silu(x + y + each) of x and y [B, W, C], contiguous, and each [B, 1, C]."""
    batch, width, size = x.shape
    out = torch.empty_like(x)
    _silu_of_sum[(batch * width, triton.cdiv(size, BLOCK))](
        x,
        y,
        each,
        out,
        each.stride(0),
        size,
        WIDTH=width,
        BLOCK=BLOCK,
        num_warps=4,
        **overlapped(x.device),
    )
    return out


@triton.jit
def _add_silu(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    begin(OVERLAP)
    wait(OVERLAP)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + at, mask=at < size, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, x + y / (1 + tl.exp(-y)), mask=at < size)


@triton.jit
def _silu_of_sum(
    x_ptr,
    y_ptr,
    each_ptr,
    out_ptr,
    each_stride,
    size,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    line = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = at < size
    each = tl.load(each_ptr + line // WIDTH * each_stride + at, mask=real, other=0.0)
    x = tl.load(x_ptr + line * size + at, mask=real, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + line * size + at, mask=real, other=0.0).to(tl.float32)
    total = x + y + each.to(tl.float32)
    tl.store(out_ptr + line * size + at, total / (1 + tl.exp(-total)), mask=real)
