"""The product of one row with a matrix: each program multiplies a few outputs from end to end.

Plain decoding of one request reads every weight for one row. A matrix product made for tiles pads
that row and splits the inputs to keep the device busy, which costs it a tenth of the bandwidth on
large layers and half of the time on small ones.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait
from tuner.engines.redrafter.kernels.silu_mul import silu_gate


def one_row(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    """Multiply one row by a matrix, accumulating in fp32.

    Args:
        x: [1, in], contiguous.
        weight: [out, in], contiguous; of the dtype of `x` or narrower.
        bias: [out].
        scale: [out] fp32, what the rows of `weight` are to be multiplied by.
        gated: the first half of the outputs are gates of the second half.

    Returns:
        [1, out] in the dtype of `x`; gated, silu(first half) * second half, [1, out / 2].
    """
    rows, inputs = weight.shape
    outputs = rows // 2 if gated else rows
    out = torch.empty((1, outputs), device=x.device, dtype=x.dtype)
    few, block, warps = _tile(inputs, weight.element_size())
    few = max(1, few // 2) if gated else few
    _one_row[(triton.cdiv(outputs, few),)](
        x,
        weight,
        bias,
        scale,
        out,
        outputs,
        INPUTS=inputs,
        GATED=gated,
        ROWS=few,
        BLOCK=block,
        num_warps=warps,
        **overlapped(x.device),
    )
    return out


def _tile(inputs: int, item_bytes: int) -> tuple[int, int, int]:
    """Return outputs of a program, inputs of a block and warps; the fastest of some on an H200."""
    block = triton.next_power_of_2(inputs)
    if item_bytes == 1:
        return 4, min(block, 4096 if inputs <= 4096 else 2048), 4
    if inputs > 2048:
        return 1, 2048, 8
    return 2, block, 4 if block <= 1024 else 8


@triton.jit
def _product(
    x_ptr,
    weight_ptr,
    bias_ptr,
    scale_ptr,
    row,
    real,
    INPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    FIRST: tl.constexpr,
):
    at = tl.arange(0, BLOCK)
    line = weight_ptr + row.to(tl.int64)[:, None] * INPUTS + at[None, :]
    weight = tl.load(line, mask=real[:, None] & (at < INPUTS)[None, :], other=0.0)
    wait(FIRST)
    x = tl.load(x_ptr + at, mask=at < INPUTS, other=0.0)
    total = weight.to(tl.float32) * x.to(tl.float32)[None, :]
    for first in range(BLOCK, INPUTS, BLOCK):
        inside = first + at < INPUTS
        weight = tl.load(line + first, mask=real[:, None] & inside[None, :], other=0.0)
        x = tl.load(x_ptr + first + at, mask=inside, other=0.0)
        total += weight.to(tl.float32) * x.to(tl.float32)[None, :]
    out = tl.sum(total, 1)
    if scale_ptr is not None:
        out *= tl.load(scale_ptr + row, mask=real, other=0.0)
    if bias_ptr is not None:
        out += tl.load(bias_ptr + row, mask=real, other=0.0).to(tl.float32)
    return out


@triton.jit
def _one_row(
    x_ptr,
    weight_ptr,
    bias_ptr,
    scale_ptr,
    out_ptr,
    outputs,
    INPUTS: tl.constexpr,
    GATED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = row < outputs
    out = _product(x_ptr, weight_ptr, bias_ptr, scale_ptr, row, real, INPUTS, ROWS, BLOCK, OVERLAP)
    if GATED:
        more = row + outputs
        up = _product(
            x_ptr, weight_ptr, bias_ptr, scale_ptr, more, real, INPUTS, ROWS, BLOCK, False
        )
        out = silu_gate(out, up, out_ptr.dtype.element_ty)
    tl.store(out_ptr + row, out, mask=real)
