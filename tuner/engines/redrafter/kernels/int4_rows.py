"""The product of several rows with INT4 weights, on the tensor cores.

The weights are the first operand, which the tensor cores take from registers: four codes at a time
become bf16 numbers there, by placing each in the mantissa of 128. They meet the activations without
their scale, which the sums of a group are multiplied by.

NOTE: it is not launched early: a step of 8 rows through an 8B took 5.4 ms so, and 3.7 ms as it is.
Its programs are small, and those of an early launch seem to gather on few processors.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 64  # that a program multiplies at most
_PROGRAMS = 264  # two for every processor of an H200
_GROUPS_OF_A_PART = 3  # fewer cost less than joining one part more

_TWO_NUMBERS = tl.constexpr(
    [
        f"""{{
        .reg .b32 code, one;
        mov.b32 one, 0x3F803F80;
        shr.u32 code, $1, {4 * at};
        lop3.b32 code, code, 0x000F000F, 0x43004300, 0xEA;
        fma.rn.bf16x2 $0, code, one, $2;
        }}"""
        for at in range(4)
    ]
)


def multiply(
    x: Tensor,
    codes: Tensor,
    scale_and_zero: Tensor,
    locks: Tensor,
    bias: Tensor | None = None,
    tile: tuple[int, int, int, int] | None = None,
) -> Tensor:
    """Multiply rows by INT4 weights.

    Args:
        x: [T, in] bf16, contiguous.
        codes: int32 [out, in / 8] in the order of `int4_order.ordered`.
        scale_and_zero: int32 [out, groups], `int4_order.scale_and_zero`.
        locks: int32 zeros [out / 32], left as zeros; of one stream.
        bias: [out].
        tile: outputs of a program, parts that the inputs are cut in, warps and stages.

    Returns:
        [T, out] in bf16.
    """
    tokens, inputs = x.shape
    outputs, groups = scale_and_zero.shape
    rows = min(_ROWS, max(16, triton.next_power_of_2(tokens)))
    columns, parts, warps, stages = tile or _tile(outputs, groups, tokens)
    out = torch.empty((tokens, outputs), device=x.device, dtype=x.dtype)
    blocks = triton.cdiv(outputs, columns), triton.cdiv(tokens, rows)
    parts = parts if blocks[1] == 1 else 1
    partial = None
    if parts > 1:
        partial = torch.empty((parts, tokens, outputs), device=x.device, dtype=torch.float32)
    _multiply[(*blocks, parts)](
        x,
        codes.view(torch.int16),
        scale_and_zero,
        bias,
        out,
        partial,
        locks,
        tokens,
        outputs,
        INPUTS=inputs,
        GROUPS=groups,
        PARTS=parts,
        ROWS=rows,
        COLUMNS=columns,
        STAGES=stages,
        ON_CUDA=x.is_cuda,
        num_warps=warps,
    )
    return out


def _tile(outputs: int, groups: int, tokens: int) -> tuple[int, int, int, int]:
    """Return outputs of a program, parts, warps and stages; nearly the fastest of ten on an H200.

    Wide programs read the activations for more outputs, narrow ones are more on a small layer.
    """
    columns = 128 if outputs > 4096 and tokens <= _ROWS else 64
    parts = round(_PROGRAMS / triton.cdiv(outputs, columns))
    stages = 6 if tokens <= 16 else 5 if tokens <= 32 else 4
    return columns, max(1, min(parts, groups // _GROUPS_OF_A_PART)), 4, stages - columns // 128


@triton.jit
def _numbers(halves, zero, AT: tl.constexpr, ON_CUDA: tl.constexpr):
    """Return the codes at bit 4 * AT of half-words, less their zero; `zero` is -128 - zero."""
    if ON_CUDA:
        return tl.inline_asm_elementwise(
            _TWO_NUMBERS[AT], "=r,r,r", [halves, zero], tl.bfloat16, True, 2
        )
    else:  # noqa: RET505, or Triton compiles both
        return ((halves >> (4 * AT)) & 15).to(tl.float32) + 128 + zero.to(tl.float32)


@triton.jit(do_not_specialize=["tokens"])
def _multiply(
    x_ptr,
    half_ptr,
    scale_ptr,
    bias_ptr,
    out_ptr,
    partial_ptr,
    lock_ptr,
    tokens,
    outputs,
    INPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
    ON_CUDA: tl.constexpr,
):
    quarter: tl.constexpr = INPUTS // GROUPS // 4  # inputs of a quarter, half-words of a group
    each: tl.constexpr = (GROUPS + PARTS - 1) // PARTS
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    token = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(2)
    at = tl.arange(0, quarter)
    used = token < tokens
    real = tl.minimum(column, outputs - 1).to(tl.int64)
    halves_at = half_ptr + real * (INPUTS // 4)
    scales = scale_ptr + real * GROUPS
    x_at = x_ptr + token.to(tl.int64)[None, :] * INPUTS + at[:, None]
    total = tl.zeros((COLUMNS, ROWS), tl.float32)
    for group in tl.range(part * each, tl.minimum(part * each + each, GROUPS), num_stages=STAGES):
        halves = tl.load(halves_at[:, None] + (group * quarter + at)[None, :])
        scale_zero = tl.load(scales + group)
        scale = (scale_zero & -65536).to(tl.float32, bitcast=True)
        zero = ((scale_zero & 15) | -0x3D00).to(tl.int16).to(tl.bfloat16, bitcast=True)
        zero = tl.broadcast_to(zero[:, None], (COLUMNS, quarter))
        sums = tl.zeros((COLUMNS, ROWS), tl.float32)
        for place in tl.static_range(4):
            x = tl.load(x_at + (group * 4 + place) * quarter, mask=used[None, :], other=0.0)
            if not ON_CUDA:
                x = x.to(tl.float32)
            sums = tl.dot(_numbers(halves, zero, place, ON_CUDA), x, sums)
        total += sums * scale[:, None]
    inside = used[None, :] & (column < outputs)[:, None]
    place = token.to(tl.int64)[None, :] * outputs + column[:, None]
    if PARTS > 1:
        tl.store(partial_ptr + part * tokens * outputs + place, total, mask=inside)
        tl.debug_barrier()
        lock = lock_ptr + tl.program_id(0)
        if tl.atomic_add(lock, 1, sem="acq_rel") < PARTS - 1:
            return
        tl.debug_barrier()
        total = tl.zeros((COLUMNS, ROWS), tl.float32)
        for other in range(PARTS):
            total += tl.load(partial_ptr + other * tokens * outputs + place, mask=inside, other=0)
        tl.store(lock, 0)
    if bias_ptr is not None:
        total += tl.load(bias_ptr + real).to(tl.float32)[:, None]
    tl.store(out_ptr + place, total, mask=inside)
