"""The product of up to 64 rows with a matrix in half precision, read at nearly the speed of memory.

A tree of some nodes, or a batch, multiplies a few rows by every weight. The weights are the first
operand of the tensor cores and the rows the second, so that few rows cost no padding to speak of.
Narrow matrices are cut along their inputs too, so that every processor has something to read; what
reads the outputs next may add the parts up itself.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, fetch, overlapped, wait
from tuner.engines.redrafter.kernels.processors import processors
from tuner.engines.redrafter.kernels.silu_mul import silu_gate
from tuner.engines.redrafter.kernels.stages import fitting_stages

_WIDE = 16_384  # outputs that keep the device busy without cutting the inputs
_JOINED = 1024  # outputs of a program that joins the parts


def few_rows(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    gated: bool = False,
    joined: bool = True,
) -> Tensor:
    """Multiply a few rows by a matrix, accumulating in fp32.

    Args:
        x: [T, in], contiguous, T at most 64; fp16 or bf16.
        weight: [out, in], contiguous, in the dtype of `x`.
        bias: [out].
        gated: the first half of the outputs are gates of the second half.
        joined: add the parts up.

    Returns:
        [T, out] in the dtype of `x`; gated, silu(first half) * second half, [T, out / 2]. Not
        joined, where the inputs are cut: what is to be added up to it, [parts, T, out] in fp32.
    """
    parts = _multiply(x, weight, bias, gated)
    if parts.dim() == 2 or not joined:
        return parts
    count, rows, outputs = parts.shape
    out = torch.empty((rows, outputs), device=x.device, dtype=x.dtype)
    _join[(triton.cdiv(outputs, _JOINED), rows)](
        parts, out, outputs, PARTS=count, BLOCK=_JOINED, num_warps=4, **overlapped(x.device)
    )
    return out


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None, gated: bool) -> Tensor:
    rows, inputs = x.shape
    outputs = weight.shape[0] // 2 if gated else weight.shape[0]
    padded = max(16, triton.next_power_of_2(rows))
    columns, block, parts, stages, ahead = _tile(inputs, weight.shape[0], padded, gated, x.device)
    out = torch.empty((rows, outputs), device=x.device, dtype=x.dtype)
    if parts > 1:
        out = torch.empty((parts, rows, outputs), device=x.device, dtype=torch.float32)
    span = triton.cdiv(triton.cdiv(inputs, block), parts) * block
    ahead = min(ahead, inputs - (parts - 1) * span)
    _few_rows[(triton.cdiv(outputs, columns), parts)](
        x,
        weight,
        bias,
        out,
        rows,
        outputs,
        INPUTS=inputs,
        GATED=gated,
        ROWS=padded,
        COLUMNS=columns,
        BLOCK=block,
        SPAN=span,
        PARTS=parts,
        AHEAD=ahead if x.is_cuda else 0,
        num_warps=4,
        num_stages=fitting_stages(
            stages, block * (padded + columns * (1 + gated)) * x.element_size(), x.device
        ),
        **overlapped(x.device),
    )
    return out


def _tile(
    inputs: int, outputs: int, rows: int, gated: bool, device: torch.device
) -> tuple[int, int, int, int, int]:
    """Choose a program's work; the fastest of some on an H200.

    Returns:
        Outputs of a program, inputs of a block, parts of the inputs, stages, and how many weights
        of every output are brought near before the rows are there.
    """
    shallow = inputs <= 1024
    if outputs >= _WIDE and shallow:
        return 64, 64, 1, 3, 0
    if shallow:
        return 64, 64, 1, 9, inputs
    if gated:
        return 64, 128, 1, 4, 0
    if outputs >= _WIDE:
        return 128, 128, 1, 4, 0
    if outputs < 2048:
        return 16, 64, 3, 5, 512
    parts = min(8, max(1, processors(device) // triton.cdiv(outputs, 64)))
    # NOTE: a sixth stage leaves no room for another program of 16 rows on the same processor.
    return 64, 128, parts, 6 if rows == 16 else 5, 512


@triton.jit
def add_bias(total, bias_ptr, column, real) -> tl.tensor:
    """Add the bias of outputs `column` [C], if there is any, to their sums [C, T]."""
    if bias_ptr is not None:
        total += tl.load(bias_ptr + column, mask=real, other=0.0).to(tl.float32)[:, None]
    return total


@triton.jit
def _few_rows(
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
    BLOCK: tl.constexpr,
    SPAN: tl.constexpr,
    PARTS: tl.constexpr,
    AHEAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    part = tl.program_id(1)
    row = tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    at = tl.arange(0, BLOCK)
    used, real = row < rows, column < outputs
    x_at = x_ptr + row[:, None] * INPUTS + at[None, :]
    weight_at = weight_ptr + column.to(tl.int64)[:, None] * INPUTS + at[None, :]
    up_at = weight_at + outputs.to(tl.int64) * INPUTS
    start = part * SPAN
    if AHEAD > 0:
        held = tl.minimum(column, outputs - 1).to(tl.int64)
        fetch(weight_ptr + held * INPUTS + start, AHEAD)
    wait(OVERLAP)
    total = tl.zeros((COLUMNS, ROWS), tl.float32)
    up = tl.zeros((COLUMNS, ROWS), tl.float32)
    steps = tl.cdiv(tl.minimum(SPAN, INPUTS - start), BLOCK)
    # NOTE: programs that begin at different inputs do not ask for the same rows at the same time.
    turn = tl.program_id(0) * 5 % steps if PARTS == 1 else 0
    for step in range(0, steps):
        turned = step + turn
        first = start + tl.where(turned < steps, turned, turned - steps) * BLOCK
        inside = (first + at < INPUTS)[None, :]
        x = tl.trans(tl.load(x_at + first, mask=used[:, None] & inside, other=0.0))
        weight = tl.load(weight_at + first, mask=real[:, None] & inside, other=0.0)
        total = tl.dot(weight, x, total)
        if GATED:
            weight = tl.load(up_at + first, mask=real[:, None] & inside, other=0.0)
            up = tl.dot(weight, x, up)
    once = real & (part == 0)
    total = add_bias(total, bias_ptr, column, once)
    if GATED:
        up = add_bias(up, bias_ptr, outputs + column, once)
        total = silu_gate(total, up, out_ptr.dtype.element_ty)
    out_at = out_ptr + (part * rows + row).to(tl.int64)[None, :] * outputs + column[:, None]
    tl.store(out_at, total, mask=used[None, :] & real[:, None])


@triton.jit
def _join(
    part_ptr,
    out_ptr,
    outputs,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    row, rows = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = column < outputs
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(part_ptr + (part * rows + row) * outputs + column, mask=real, other=0.0)
    tl.store(out_ptr + row * outputs + column, total, mask=real)
