"""The product of some rows with a small matrix: every warp multiplies a slice of the inputs.

A small product takes as long as its longest chain of loads and multiplications. So a program has
few outputs, brings its weights into registers before the rows are there, and shares the inputs out
among its warps, each with a tensor core of its own.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.few_rows import add_bias
from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait
from tuner.engines.redrafter.kernels.processors import processors
from tuner.engines.redrafter.kernels.silu_mul import silu_gate
from tuner.engines.redrafter.kernels.stages import fits

_ROWS = 8  # of a program
_COLUMNS = 16  # outputs of a program
_MOST_INPUTS = 2048
_MOST_OUTPUTS = 8192  # beyond them the device is busy with larger programs


def suits(rows: int, weight: Tensor, gated: bool = False) -> bool:
    """Whether this is the kernel for so many rows and `weight` [out, in].

    More rows than a program takes are worth it while most processors have one program at most.
    """
    outputs, inputs = weight.shape
    if inputs > _MOST_INPUTS or outputs > _MOST_OUTPUTS:
        return False
    slices, block = _cut(inputs)
    held = slices * block * (_COLUMNS * (1 + gated) + _ROWS) * weight.element_size()
    programs = triton.cdiv(outputs, _COLUMNS) * triton.cdiv(rows, _ROWS)
    few = rows <= _ROWS or 8 * programs <= 7 * processors(weight.device)
    return few and fits(held, weight.device)


def _cut(inputs: int) -> tuple[int, int]:
    """Return the slices of the inputs, each for a warp, and the inputs of a slice."""
    slices = 4 if inputs <= 1024 else 8
    return slices, max(16, triton.next_power_of_2(triton.cdiv(inputs, slices)))


def sliced_rows(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, gated: bool = False
) -> Tensor:
    """Multiply a few rows by a small matrix, accumulating in fp32.

    Args:
        x: [T, in], contiguous, in at most 2048; fp16 or bf16.
        weight: [out, in], contiguous, in the dtype of `x`.
        bias: [out].
        gated: the first half of the outputs are gates of the second half.

    Returns:
        [T, out] in the dtype of `x`; gated, silu(first half) * second half, [T, out / 2].
    """
    rows, inputs = x.shape
    outputs = weight.shape[0] // 2 if gated else weight.shape[0]
    out = torch.empty((rows, outputs), device=x.device, dtype=x.dtype)
    slices, block = _cut(inputs)
    _sliced_rows[(triton.cdiv(outputs, _COLUMNS), triton.cdiv(rows, _ROWS))](
        x,
        weight,
        bias,
        out,
        rows,
        outputs,
        INPUTS=inputs,
        GATED=gated,
        ROWS=_ROWS,
        COLUMNS=_COLUMNS,
        SLICES=slices,
        BLOCK=block,
        num_warps=slices,
        **overlapped(x.device),
    )
    return out


@triton.jit
def _sliced_rows(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    rows,
    outputs,
    INPUTS: tl.constexpr,
    GATED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SLICES: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    at = tl.arange(0, SLICES)[:, None, None] * BLOCK + tl.arange(0, BLOCK)[None, None, :]
    used, real = row < rows, column < outputs
    there = real[None, :, None] & (at < INPUTS)
    weight_at = weight_ptr + column[None, :, None] * INPUTS + at
    weight = tl.load(weight_at, mask=there, other=0.0)
    if GATED:
        up_weight = tl.load(weight_at + outputs * INPUTS, mask=there, other=0.0)
    wait(OVERLAP)
    x_at = x_ptr + row[None, :, None] * INPUTS + at
    x = tl.load(x_at, mask=used[None, :, None] & (at < INPUTS), other=0.0)
    x = tl.trans(x, 0, 2, 1)
    total = add_bias(tl.sum(tl.dot(weight, x), 0), bias_ptr, column, real)
    if GATED:
        up = add_bias(tl.sum(tl.dot(up_weight, x), 0), bias_ptr, outputs + column, real)
        total = silu_gate(total, up, out_ptr.dtype.element_ty)
    out_at = out_ptr + row[None, :] * outputs + column[:, None]
    tl.store(out_at, total, mask=used[None, :] & real[:, None])
