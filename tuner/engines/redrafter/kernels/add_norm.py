"""Residual addition and RMS norm in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait


def add_norm(x: Tensor, delta: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """Return x + delta and its RMS norm, both [T, size] in the dtype of `x`.

    Args:
        x: [T, size], contiguous.
        delta: as `x`, or summands of it: [parts, T, size] in fp32, contiguous.
        weight: [size]; None: 1.
        eps: what is added to the mean square.
    """
    tokens, size = x.shape
    total, normed = torch.empty_like(x), torch.empty_like(x)
    _add_norm[(tokens,)](
        x,
        delta,
        weight,
        total,
        normed,
        eps,
        SIZE=size,
        BLOCK=triton.next_power_of_2(size),
        PARTS=delta.shape[0] if delta.dim() == 3 else 1,
        num_warps=4,
        **overlapped(x.device),
    )
    return total, normed


@triton.jit
def _add_norm(
    x_ptr,
    delta_ptr,
    weight_ptr,
    total_ptr,
    normed_ptr,
    eps,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    row = tl.program_id(0).to(tl.int64) * SIZE
    part = tl.num_programs(0).to(tl.int64) * SIZE
    kind = total_ptr.dtype.element_ty
    at = tl.arange(0, BLOCK)
    real = at < SIZE
    weight = tl.full((BLOCK,), 1.0, tl.float32)
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + at, mask=real, other=0.0).to(tl.float32)
    wait(OVERLAP)
    x = tl.load(x_ptr + row + at, mask=real, other=0.0).to(tl.float32)
    delta = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(PARTS):
        delta += tl.load(delta_ptr + i * part + row + at, mask=real, other=0.0).to(tl.float32)
    # NOTE: a product is rounded when it is written, and the residual stream is rounded to its own
    # type before it is normalised, as in torch.
    total = (x + delta.to(kind).to(tl.float32)).to(kind)
    tl.store(total_ptr + row + at, total, mask=real)
    total = total.to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(total * total, 0) / SIZE + eps)
    tl.store(normed_ptr + row + at, total * scale * weight, mask=real)
