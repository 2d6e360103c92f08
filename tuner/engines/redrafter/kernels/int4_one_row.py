"""The product of one row with INT4 weights, on the integer units.

Turning codes into floats costs more than reading them. So the row is written as two digits of 8
bits with a scale for every 32 inputs, once for all outputs of a program, and four codes at a time
meet four digits in one instruction (dp4a). A digit pair keeps 15 bits below the largest of its 32
inputs where bf16 itself keeps 8, and the sums are exact.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, fetch, overlapped, wait
from tuner.engines.redrafter.kernels.silu_mul import silu_gate


def one_row(
    x: Tensor,
    codes: Tensor,
    scale_and_zero: Tensor,
    bias: Tensor | None = None,
    gated: bool = False,
    tile: tuple[int, int, int, int] | None = None,
) -> Tensor:
    """Multiply one row by INT4 weights.

    Args:
        x: [1, in] bf16, contiguous.
        codes: int32 [out, in / 8] in the order of `int4_order.ordered`.
        scale_and_zero: int32 [out, groups], `int4_order.scale_and_zero`.
        bias: [out].
        gated: the first half of the outputs are gates of the second half.
        tile: outputs of a tile, warps, stages and programs; chosen if None.

    Returns:
        [1, out] in bf16; gated, silu(first half) * second half, [1, out / 2].
    """
    rows, words = codes.shape
    outputs = rows // 2 if gated else rows
    out = torch.empty((1, outputs), device=x.device, dtype=x.dtype)
    few, warps, stages, programs = tile or _tile(words)
    tiles = triton.cdiv(rows, few)
    _one_row[(min(tiles, programs),)](
        x.view(torch.int32),
        codes,
        scale_and_zero,
        bias,
        out,
        outputs,
        tiles,
        WORDS=words,
        GROUPS=scale_and_zero.shape[1],
        GATED=gated,
        ROWS=few,
        BLOCK=triton.next_power_of_2(words),
        STAGES=stages,
        ON_CUDA=x.is_cuda,
        num_warps=warps,
        **overlapped(x.device),
    )
    return out


def _tile(words: int) -> tuple[int, int, int, int]:
    """Return outputs of a tile, warps, stages and programs; nearly the fastest of 12 on an H200."""
    if words <= 512:
        return 4, 4, 3, 792
    return 2, 4 if words <= 2048 else 8, 4, 528


@triton.jit
def _interleave(a, b, ON_CUDA: tl.constexpr):
    """Put the two low bytes of `a` and `b` in the low half, their next ones in the high half."""
    if ON_CUDA:
        return tl.inline_asm_elementwise(
            "prmt.b32 $0, $1, $2, 0x5140;", "=r,r,r", [a, b], tl.int32, True, 1
        )
    low = (a & 255) | ((b & 255) << 8)
    return low | (((a >> 8) & 255) << 16) | (((b >> 8) & 255) << 24)


@triton.jit
def _halves(a, b, HIGH: tl.constexpr, ON_CUDA: tl.constexpr):
    """Put the low (high) half of `a` below that of `b`."""
    if ON_CUDA:
        if HIGH:
            return tl.inline_asm_elementwise(
                "prmt.b32 $0, $1, $2, 0x7632;", "=r,r,r", [a, b], tl.int32, True, 1
            )
        return tl.inline_asm_elementwise(
            "prmt.b32 $0, $1, $2, 0x5410;", "=r,r,r", [a, b], tl.int32, True, 1
        )
    if HIGH:
        return ((a >> 16) & 0xFFFF) | (b & -65536)
    return (a & 0xFFFF) | (b << 16)


@triton.jit
def _bytes_dot(a, b, SIGNED: tl.constexpr):
    total = a * 0
    for byte in tl.static_range(4):
        digit = (b >> (8 * byte)) & 255
        if SIGNED:
            digit = digit - ((digit & 128) << 1)
        total += ((a >> (8 * byte)) & 255) * digit
    return total


@triton.jit
def _dot8(words, even_high, odd_high, even_low, odd_low, ON_CUDA: tl.constexpr):
    """Return the sum over the eight codes of a word of code * (256 * high + low)."""
    if ON_CUDA:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 even, odd, sum;
            and.b32 even, $1, 0x0F0F0F0F;
            shr.u32 odd, $1, 4;
            and.b32 odd, odd, 0x0F0F0F0F;
            dp4a.u32.s32 sum, even, $2, 0;
            dp4a.u32.s32 sum, odd, $3, sum;
            shl.b32 sum, sum, 8;
            dp4a.u32.u32 sum, even, $4, sum;
            dp4a.u32.u32 $0, odd, $5, sum;
            }""",
            "=r,r,r,r,r,r",
            [words, even_high, odd_high, even_low, odd_low],
            tl.int32,
            True,
            1,
        )
    even, odd = words & 0x0F0F0F0F, (words >> 4) & 0x0F0F0F0F
    high = _bytes_dot(even, even_high, True) + _bytes_dot(odd, odd_high, True)
    return high * 256 + _bytes_dot(even, even_low, False) + _bytes_dot(odd, odd_low, False)


@triton.jit
def _first(pair):
    return (pair << 16).to(tl.float32, bitcast=True)


@triton.jit
def _second(pair):
    return (pair & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _digit_pair(x, per_step):
    """Return round(x * per_step) in the low 16 bits of an int32."""
    return (x * per_step + 12582912.0).to(tl.int32, bitcast=True)


@triton.jit
def _digits(a, b, per_step, ON_CUDA: tl.constexpr):
    """Return high and low digits of the inputs that meet a word's even (odd) codes."""
    first = _interleave(_digit_pair(_first(a), per_step), _digit_pair(_first(b), per_step), ON_CUDA)
    second = _interleave(
        _digit_pair(_second(a), per_step), _digit_pair(_second(b), per_step), ON_CUDA
    )
    return _halves(first, second, True, ON_CUDA), _halves(first, second, False, ON_CUDA)


@triton.jit
def _largest(pair):
    return tl.maximum(tl.abs(_first(pair)), tl.abs(_second(pair)))


@triton.jit
def _for_each_word(fours, BLOCK: tl.constexpr):
    """Repeat what belongs to four words for each of them: [BLOCK / 4] to [BLOCK]."""
    return tl.reshape(tl.broadcast_to(fours[:, None], (BLOCK // 4, 4)), (BLOCK,))


@triton.jit
def _rows_of(tile, outputs, GATED: tl.constexpr, ROWS: tl.constexpr):
    """Return the rows of the weights of a tile; gated, those of the gates first."""
    each: tl.constexpr = ROWS // 2 if GATED else ROWS
    own = tl.arange(0, ROWS)
    return tl.minimum(tile * each + own % each, outputs - 1) + own // each * outputs


@triton.jit
def _one_row(
    pair_ptr,
    word_ptr,
    scale_ptr,
    bias_ptr,
    out_ptr,
    outputs,
    tiles,
    WORDS: tl.constexpr,
    GROUPS: tl.constexpr,
    GATED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    ON_CUDA: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    if OVERLAP:
        for ahead in tl.static_range(STAGES - 1):
            tile = tl.program_id(0) + ahead * tl.num_programs(0)
            if tile < tiles:
                row = _rows_of(tile, outputs, GATED, ROWS)
                fetch(word_ptr + row.to(tl.int64) * WORDS, WORDS)
                fetch(scale_ptr + row * GROUPS, GROUPS)
    each: tl.constexpr = ROWS // 2 if GATED else ROWS
    quarter: tl.constexpr = WORDS // GROUPS  # words of a group, pairs of inputs of a quarter
    fours: tl.constexpr = BLOCK // 4  # four words share the scale of their digits
    word = tl.arange(0, BLOCK)
    real = word < WORDS if WORDS < BLOCK else tl.full((BLOCK,), True, tl.int1)
    group = tl.arange(0, BLOCK // quarter)
    has_scale = group < GROUPS if WORDS < BLOCK else group >= 0

    wait(OVERLAP)
    pairs = pair_ptr + word // quarter * (4 * quarter) + word % quarter
    a = tl.load(pairs, mask=real, other=0)
    b = tl.load(pairs + quarter, mask=real, other=0)
    c = tl.load(pairs + 2 * quarter, mask=real, other=0)
    d = tl.load(pairs + 3 * quarter, mask=real, other=0)
    peak = tl.maximum(tl.maximum(_largest(a), _largest(b)), tl.maximum(_largest(c), _largest(d)))
    step = tl.maximum(tl.max(tl.reshape(peak, (fours, 4)), 1) * (1 / 32000), 1e-30)
    per_step = _for_each_word(1 / step, BLOCK)
    even_high, even_low = _digits(a, c, per_step, ON_CUDA)
    odd_high, odd_low = _digits(b, d, per_step, ON_CUDA)
    ones = tl.full((BLOCK,), 0x11111111, tl.int32)
    sums = _dot8(ones, even_high, odd_high, even_low, odd_low, ON_CUDA)
    sums = tl.sum(tl.reshape(sums, (fours, 4)), 1)

    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=STAGES):
        row = _rows_of(tile, outputs, GATED, ROWS)
        words = tl.load(
            word_ptr + row.to(tl.int64)[:, None] * WORDS + word[None, :],
            mask=real[None, :],
            other=0,
        )
        scale_zero = tl.load(
            scale_ptr + row[:, None] * GROUPS + group[None, :], mask=has_scale[None, :], other=0
        )
        shape: tl.constexpr = (ROWS, BLOCK // quarter, quarter // 4)
        scale_zero = tl.broadcast_to(scale_zero[:, :, None], shape)
        scale_zero = tl.reshape(scale_zero, (ROWS, fours))
        dots = _dot8(
            words,
            even_high[None, :],
            odd_high[None, :],
            even_low[None, :],
            odd_low[None, :],
            ON_CUDA,
        )
        dots = tl.sum(tl.reshape(dots, (ROWS, fours, 4)), 2)
        dots -= (scale_zero & 0xFFFF) * sums[None, :]
        out = tl.sum(dots.to(tl.float32) * (_second(scale_zero) * step[None, :]), 1)
        if bias_ptr is not None:
            out += tl.load(bias_ptr + row).to(tl.float32)
        if GATED:
            gate, up = tl.split(tl.trans(tl.reshape(out, (2, each))))
            out = silu_gate(gate, up, out_ptr.dtype.element_ty)
        column = tile * each + tl.arange(0, each)
        tl.store(out_ptr + column, out, mask=column < outputs)
