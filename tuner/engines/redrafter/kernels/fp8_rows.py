"""FP8 products with a scale for every token and every output, and the rounding of the tokens.

The tensor cores multiply e4m3 by e4m3; the scales come in where the sums are written out, so that
no second launch is needed. For up to 64 rows this reads the weights at nearly the speed of memory.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait
from tuner.engines.redrafter.kernels.stages import fitting_stages

ROWS_PER_BLOCK = 64  # fewer are padded: the tensor cores take 64 at once
MANY_OUTPUTS = 16_384


def quantize_tokens(x: Tensor, largest: float) -> tuple[Tensor, Tensor]:
    """Return e4m3 codes [T, in] and fp32 scales [T] of `x` [T, in]; `largest` code is the peak."""
    tokens, size = x.shape
    codes = torch.empty((tokens, size), device=x.device, dtype=torch.float8_e4m3fn)
    scale = torch.empty((tokens,), device=x.device, dtype=torch.float32)
    block = triton.next_power_of_2(size)
    _quantize[(tokens,)](
        x,
        codes,
        scale,
        x.stride(0),
        largest,
        SIZE=size,
        BLOCK=block,
        num_warps=8,
        **overlapped(x.device),
    )
    return codes, scale


def multiply(
    codes: Tensor, scale: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None
) -> Tensor:
    """Multiply quantized tokens by a quantized matrix.

    Args:
        codes: [T, in] e4m3, contiguous.
        scale: [T] fp32.
        weight: [out, in] e4m3, contiguous.
        weight_scale: [out] fp32.
        bias: [out].

    Returns:
        [T, out] in bf16.
    """
    tokens, inputs = codes.shape
    outputs = weight.shape[0]
    out = torch.empty((tokens, outputs), device=codes.device, dtype=torch.bfloat16)
    many = outputs >= MANY_OUTPUTS
    columns = 64 if many or outputs > inputs else 32
    block, stages = (128, 3) if many else (256, 5)
    _multiply[(triton.cdiv(outputs, columns), triton.cdiv(tokens, ROWS_PER_BLOCK))](
        codes,
        scale,
        weight,
        weight_scale,
        bias,
        out,
        tokens,
        outputs,
        INPUTS=inputs,
        ROWS=ROWS_PER_BLOCK,
        COLUMNS=columns,
        BLOCK=block,
        num_warps=4,
        num_stages=fitting_stages(stages, block * (ROWS_PER_BLOCK + columns), codes.device),
        **overlapped(codes.device),
    )
    return out


@triton.jit
def _quantize(
    x_ptr,
    code_ptr,
    scale_ptr,
    x_stride,
    largest,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + token * x_stride + at, mask=at < SIZE, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 0), 1e-12) / largest
    code = tl.clamp(x / scale, -largest, largest).to(code_ptr.dtype.element_ty)
    tl.store(code_ptr + token * SIZE + at, code, mask=at < SIZE)
    tl.store(scale_ptr + token, scale)


@triton.jit
def _multiply(
    code_ptr,
    scale_ptr,
    weight_ptr,
    weight_scale_ptr,
    bias_ptr,
    out_ptr,
    tokens,
    outputs,
    INPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    token = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    at = tl.arange(0, BLOCK)
    used, real = token < tokens, column < outputs
    code_at = code_ptr + token[:, None] * INPUTS + at[None, :]
    weight_at = weight_ptr + column.to(tl.int64)[None, :] * INPUTS + at[:, None]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, INPUTS, BLOCK):
        inside = first + at < INPUTS
        code = tl.load(code_at + first, mask=used[:, None] & inside[None, :], other=0.0)
        weight = tl.load(weight_at + first, mask=inside[:, None] & real[None, :], other=0.0)
        total = tl.dot(code, weight, total)
    total *= tl.load(scale_ptr + token, mask=used, other=0.0)[:, None]
    total *= tl.load(weight_scale_ptr + column, mask=real, other=0.0)[None, :]
    if bias_ptr is not None:
        total += tl.load(bias_ptr + column, mask=real, other=0.0).to(tl.float32)[None, :]
    out_at = out_ptr + token.to(tl.int64)[:, None] * outputs + column[None, :]
    tl.store(out_at, total, mask=used[:, None] & real[None, :])
