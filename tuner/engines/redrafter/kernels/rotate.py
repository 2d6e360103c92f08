"""Rotary embedding of query and key heads in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads [T, heads, dim] by cos and signed sin [T, 1, dim]; heads lie contiguous."""
    tokens, heads, dim = x.shape
    out = torch.empty((tokens, heads, dim), device=x.device, dtype=x.dtype)
    _rotate[(tokens,)](
        x,
        cos,
        sin,
        out,
        x.stride(0),
        cos.stride(0),
        sin.stride(0),
        HEADS=heads,
        DIM=dim,
        BLOCK_HEADS=triton.next_power_of_2(heads),
        BLOCK_DIM=triton.next_power_of_2(dim),
        num_warps=4,
    )
    return out


@triton.jit
def _rotate(
    x_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    x_stride,
    cos_stride,
    sin_stride,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):
    token = tl.program_id(0)
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    dim = tl.arange(0, BLOCK_DIM)[None, :]
    real = (head < HEADS) & (dim < DIM)
    other = (dim + DIM // 2) % DIM
    x_at = x_ptr + token * x_stride + head * DIM
    x = tl.load(x_at + dim, mask=real, other=0.0).to(tl.float32)
    turned = tl.load(x_at + other, mask=real, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + token * cos_stride + dim, mask=dim < DIM, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + token * sin_stride + dim, mask=dim < DIM, other=0.0).to(tl.float32)
    out_at = out_ptr + (token * HEADS + head) * DIM + dim
    tl.store(out_at, x * cos + turned * sin, mask=real)
