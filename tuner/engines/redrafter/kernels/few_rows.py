"""The product of up to 64 rows with a matrix in half precision, read at nearly the speed of memory.

A tree of some nodes, or a batch, multiplies a few rows by every weight. The weights are the first
operand of the tensor cores and the rows the second, so that few rows cost no padding to speak of.
Narrow matrices are cut along their inputs too, so that every processor has something to read.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, fetch, overlapped, wait
from tuner.engines.redrafter.kernels.stages import fitting_stages

_WIDE = 16_384  # outputs that keep the device busy without cutting the inputs
_JOINED = 1024  # outputs of a program that joins the parts


def few_rows(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply a few rows by a matrix, accumulating in fp32.

    Args:
        x: [T, in], contiguous, T at most 64; fp16 or bf16.
        weight: [out, in], contiguous, in the dtype of `x`.
        bias: [out].

    Returns:
        [T, out] in the dtype of `x`.
    """
    rows, inputs = x.shape
    outputs = weight.shape[0]
    out = torch.empty((rows, outputs), device=x.device, dtype=x.dtype)
    padded = max(16, triton.next_power_of_2(rows))
    columns, block, parts, stages, ahead = _tile(inputs, outputs, padded)
    overlap = overlapped(x.device)
    part = out
    if parts > 1:
        part = torch.empty((parts, rows, outputs), device=x.device, dtype=torch.float32)
    span = triton.cdiv(triton.cdiv(inputs, block), parts) * block
    ahead = min(ahead, inputs - (parts - 1) * span)
    _few_rows[(triton.cdiv(outputs, columns), parts)](
        x,
        weight,
        bias if parts == 1 else None,
        part,
        rows,
        outputs,
        INPUTS=inputs,
        ROWS=padded,
        COLUMNS=columns,
        BLOCK=block,
        SPAN=span,
        AHEAD=ahead if x.is_cuda else 0,
        num_warps=4,
        num_stages=fitting_stages(stages, block * (padded + columns) * 2, x.device),
        **overlap,
    )
    if parts > 1:
        _join[(triton.cdiv(outputs, _JOINED), rows)](
            part, bias, out, outputs, PARTS=parts, BLOCK=_JOINED, num_warps=4, **overlap
        )
    return out


def _tile(inputs: int, outputs: int, rows: int) -> tuple[int, int, int, int, int]:
    """Choose a program's work; the fastest of some on an H200.

    Returns:
        Outputs of a program, inputs of a block, parts of the inputs, stages, and how many weights
        of every output are brought near before the rows are there.
    """
    shallow = inputs <= 1024
    if outputs >= _WIDE:
        return (64, 64, 1, 3, 0) if shallow else (128, 128, 1, 4, 0)
    if shallow:
        return 64, 64, 1, 9, inputs
    if outputs < 2048:
        return 16, 64, 3, 5, 512
    # NOTE: a sixth stage leaves no room for another program of 16 rows on the same processor.
    return 64, 128, 2, 6 if rows == 16 else 5, 512


@triton.jit
def _few_rows(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    rows,
    outputs,
    INPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    SPAN: tl.constexpr,
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
    start = part * SPAN
    if AHEAD > 0:
        held = tl.minimum(column, outputs - 1).to(tl.int64)
        fetch(weight_ptr + held * INPUTS + start, AHEAD)
    wait(OVERLAP)
    total = tl.zeros((COLUMNS, ROWS), tl.float32)
    for first in range(start, tl.minimum(start + SPAN, INPUTS), BLOCK):
        inside = (first + at < INPUTS)[None, :]
        x = tl.load(x_at + first, mask=used[:, None] & inside, other=0.0)
        weight = tl.load(weight_at + first, mask=real[:, None] & inside, other=0.0)
        total = tl.dot(weight, tl.trans(x), total)
    if bias_ptr is not None:
        total += tl.load(bias_ptr + column, mask=real, other=0.0).to(tl.float32)[:, None]
    out_at = out_ptr + (part * rows + row).to(tl.int64)[None, :] * outputs + column[:, None]
    tl.store(out_at, total, mask=used[None, :] & real[:, None])


@triton.jit
def _join(
    part_ptr,
    bias_ptr,
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
    if bias_ptr is not None:
        total += tl.load(bias_ptr + column, mask=real, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * outputs + column, total, mask=real)
