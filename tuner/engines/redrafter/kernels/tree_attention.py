"""Tree attention over paged KV on CUDA, in Triton: no key is gathered, no mask is built.

One program handles a block of query rows of one KV head of one sequence, over one part of its
context, which all nodes see, or over the nodes of its tree, which see their ancestors (split KV, as
in flash decoding); a second kernel joins the parts by their log-sum-exp. Where there is work enough
without parts, a program handles all of it. Lengths are read on the device, so the launch does not
depend on them and can be captured in a graph.

Source of the split: Dao et al., Flash-Decoding (2023). The tree mask per request is ours.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait
from tuner.engines.redrafter.kernels.processors import processors
from tuner.engines.redrafter.kernels.stages import fitting_stages

ROWS_PER_BLOCK = (128, 64, 32, 16)
MAX_PARTS = 32
LONG = 512  # positions from which a context is cut finely
LOG2_E = math.log2(math.e)  # exponentials are taken to base 2, which the device has


def attend(
    q: Tensor, keys: Tensor, values: Tensor, slots: Tensor, kv_len: Tensor, sees: Tensor
) -> Tensor:
    """Attend from the nodes of B trees to their contexts and ancestors.

    Args:
        q: [B * N, heads, dim], a row's heads contiguous.
        keys: [all slots, kv_heads, dim], contiguous; the nodes' own are already there. In the
            dtype of `q`, or in FP8, which is widened to it.
        values: as `keys`.
        slots: [at least B, capacity] slot of every position.
        kv_len: [at least B] positions before the tree.
        sees: [B, N, N] bool.

    Returns:
        [B * N, heads, dim] in the dtype of `q`.
    """
    batch, nodes, _ = sees.shape
    _, heads, dim = q.shape
    kv_heads = keys.shape[1]
    rows = heads // kv_heads * nodes
    half = q.element_size() == 2
    capacity = slots.shape[1]
    block_rows, block_keys, parts = _cut(rows, batch * kv_heads, capacity, q.device, half)
    row_blocks = triton.cdiv(rows, block_rows)
    out = torch.empty((batch * nodes, heads, dim), device=q.device, dtype=q.dtype)
    whole = parts == 1  # a program attends to the context and to the tree
    part, lse = out, None
    if not whole:
        size = (parts + 1, batch * nodes, heads)
        part = torch.empty((*size, dim), device=q.device, dtype=torch.float32)
        lse = torch.empty(size, device=q.device, dtype=torch.float32)
    stages = 1  # enough where a part is one block
    if capacity >= 2 * parts * block_keys:
        # NOTE: the queries take as much room as a stage.
        pair = 2 * block_keys * dim * q.element_size()
        stages = max(1, fitting_stages(4, pair, q.device) - 1)
    overlap = overlapped(q.device)
    _attend_part[(row_blocks, 1 if whole else parts + 1, batch * kv_heads)](
        q,
        keys,
        values,
        slots,
        kv_len,
        sees,
        part,
        lse,
        q.stride(0),
        slots.stride(0),
        batch * nodes,
        nodes,
        LOG2_E / math.sqrt(dim),
        KV_HEADS=kv_heads,
        GROUP=heads // kv_heads,
        DIM=dim,
        BLOCK_DIM=max(16, triton.next_power_of_2(dim)),
        PARTS=parts,
        WHOLE=whole,
        BLOCK_ROWS=block_rows,
        BLOCK_KEYS=block_keys,
        EXACT="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=_warps(block_rows),
        num_stages=stages,
        **overlap,
    )
    if not whole:
        _join_parts[(batch * nodes * heads,)](
            part,
            lse,
            out,
            batch * nodes * heads,
            DIM=dim,
            BLOCK_DIM=triton.next_power_of_2(dim),
            PARTS=parts + 1,
            PADDED_PARTS=triton.next_power_of_2(parts + 1),
            num_warps=1,
            **overlap,
        )
    return out


def _cut(
    rows: int, heads: int, capacity: int, device: torch.device, half: bool
) -> tuple[int, int, int]:
    """Choose a program's work; the fastest of some on an H200.

    Args:
        rows: query rows of a sequence's KV head.
        heads: KV heads of all sequences.
        capacity: positions of the longest context.
        device: where.
        half: whether keys are in half precision, of which more fit.

    Returns:
        Query rows, keys of a block, and the parts of the context, a power of two.
    """
    sizes = ROWS_PER_BLOCK if half else ROWS_PER_BLOCK[1:]
    least = min(triton.cdiv(rows, size) * size for size in sizes)
    fitting = [size for size in sizes if triton.cdiv(rows, size) * size <= 1.25 * least]
    worth = max(2, capacity // (32 if capacity >= LONG else 64))
    for block in (fitting[0], ROWS_PER_BLOCK[-1]):
        programs = triton.cdiv(rows, block) * heads
        # NOTE: what a part gives is written and read again, which many rows are not worth.
        wanted = (2 if block <= 64 else 0.5) * processors(device) / programs
        parts = 2 ** int(math.log2(max(1, min(MAX_PARTS, wanted, worth))))
        if 4 * programs * (parts + 1) >= processors(device):
            break
    return block, _keys(capacity / parts) if half else 32, parts


def _keys(positions: float) -> int:
    """Return the keys of a block: all of a part of so many positions, if they are not too many."""
    single = triton.next_power_of_2(int(0.8 * positions))  # contexts seldom fill their room
    return max(32, single) if single <= 128 else 64


def _warps(block_rows: int) -> int:
    return 8 if block_rows > 64 else 4


@triton.jit
def _attend_part(
    q_ptr,
    key_ptr,
    value_ptr,
    slot_ptr,
    len_ptr,
    sees_ptr,
    part_ptr,
    lse_ptr,
    q_stride,
    slot_stride,
    flat_nodes,
    nodes,
    scale,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    PARTS: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    EXACT: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    part = tl.program_id(1)
    sequence = tl.program_id(2) // KV_HEADS
    kv_head = tl.program_id(2) % KV_HEADS
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    used = row < GROUP * nodes
    node = row % nodes
    head = kv_head * GROUP + row // nodes
    dim = tl.arange(0, BLOCK_DIM)
    real = (dim < DIM)[None, :]
    flat = sequence * nodes + node
    q_at = q_ptr + flat[:, None] * q_stride + head[:, None] * DIM + dim[None, :]
    q = tl.load(q_at, mask=used[:, None] & real, other=0.0)

    context = tl.load(len_ptr + sequence).to(tl.int32)
    slots_at = slot_ptr + sequence * slot_stride
    sees_at = sees_ptr + (sequence * nodes + node[:, None]) * nodes
    best = tl.full((BLOCK_ROWS,), float("-inf"), tl.float32)
    weight = tl.zeros((BLOCK_ROWS,), tl.float32)
    mixed = tl.zeros((BLOCK_ROWS, BLOCK_DIM), tl.float32)
    if part < PARTS:
        span = tl.cdiv(tl.cdiv(context, BLOCK_KEYS), PARTS) * BLOCK_KEYS
        end = tl.minimum((part + 1) * span, context)
        for first in range(part * span, end, BLOCK_KEYS):
            column = first + tl.arange(0, BLOCK_KEYS)
            inside = column < end
            slot = tl.load(slots_at + column, mask=inside, other=0)
            at = slot[:, None] * (KV_HEADS * DIM) + kv_head * DIM + dim[None, :]
            score, value = _score(q, key_ptr, value_ptr, at, inside[:, None] & real, scale, EXACT)
            score = tl.where(inside[None, :], score, float("-inf"))
            best, weight, mixed = _mix(best, weight, mixed, score, value, EXACT)
    if WHOLE or part == PARTS:
        for first in range(0, nodes, BLOCK_KEYS):
            other = first + tl.arange(0, BLOCK_KEYS)
            inside = other < nodes
            slot = tl.load(slots_at + context + other, mask=inside, other=0)
            at = slot[:, None] * (KV_HEADS * DIM) + kv_head * DIM + dim[None, :]
            score, value = _score(q, key_ptr, value_ptr, at, inside[:, None] & real, scale, EXACT)
            seen = tl.load(sees_at + other, mask=used[:, None] & inside[None, :], other=0)
            score = tl.where(seen != 0, score, float("-inf"))
            best, weight, mixed = _mix(best, weight, mixed, score, value, EXACT)
    safe = tl.where(weight == 0.0, 1.0, weight)
    line = (part * flat_nodes + flat) * (KV_HEADS * GROUP) + head
    part_at = part_ptr + line[:, None] * DIM + dim[None, :]
    tl.store(part_at, mixed / safe[:, None], mask=used[:, None] & real)
    if not WHOLE:
        lse = tl.where(weight == 0.0, float("-inf"), best + tl.log2(safe))
        tl.store(lse_ptr + line, lse, mask=used)


@triton.jit
def _score(q, key_ptr, value_ptr, at, there, scale, EXACT: tl.constexpr):
    """Score the keys at some places against the queries; return that and their values."""
    key = tl.load(key_ptr + at, mask=there, other=0.0).to(q.dtype)
    value = tl.load(value_ptr + at, mask=there, other=0.0).to(q.dtype)
    return tl.dot(q, tl.trans(key), input_precision=EXACT) * scale, value


@triton.jit
def _mix(best, weight, mixed, score, value, EXACT: tl.constexpr):
    """Mix more values in; `best` is the highest score so far, which all weights are relative to."""
    highest = tl.maximum(best, tl.max(score, 1))
    shift = tl.where(highest == float("-inf"), 0.0, highest)
    p = tl.exp2(score - shift[:, None])
    fade = tl.exp2(best - shift)
    weight = weight * fade + tl.sum(p, 1)
    mixed = mixed * fade[:, None] + tl.dot(p.to(value.dtype), value, input_precision=EXACT)
    return highest, weight, mixed


@triton.jit
def _join_parts(
    part_ptr,
    lse_ptr,
    out_ptr,
    lines,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    PARTS: tl.constexpr,
    PADDED_PARTS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    line = tl.program_id(0)
    part = tl.arange(0, PADDED_PARTS)
    used = part < PARTS
    dim = tl.arange(0, BLOCK_DIM)
    real = dim < DIM
    lse = tl.load(lse_ptr + part * lines + line, mask=used, other=float("-inf"))
    share = tl.exp2(lse - tl.max(lse, 0))
    share = share / tl.sum(share, 0)
    at = part_ptr + (part[:, None] * lines + line) * DIM + dim[None, :]
    mixed = tl.load(at, mask=used[:, None] & real[None, :], other=0.0)
    tl.store(out_ptr + line * DIM + dim, tl.sum(mixed * share[:, None], 0), mask=real)
