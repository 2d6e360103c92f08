"""What a step accepted, written into the rows and told in one small tensor, in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.accept import Accepted
from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait
from tuner.engines.redrafter.rows import Rows

BLOCK = 1024


def advance_rows(
    rows: Rows, accepted: Accepted, count: Tensor, context: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Set the true token, length and context of the first B rows for the next step.

    Args:
        rows: the running requests.
        accepted: of B trees.
        count: [B] their nodes.
        context: [B, N, C] of every node; None: the rows keep theirs.

    Returns:
        [B, 2 + L] accepted drafted tokens, nodes, tokens; and the slots [B, L] that the keys and
        values of accepted nodes lie in and are to go to, 0 for leftovers.
    """
    batch, length = accepted.path.shape
    told = torch.empty((batch, 2 + length), device=count.device, dtype=torch.long)
    source, target = torch.empty_like(accepted.path), torch.empty_like(accepted.path)
    nodes, size = (1, 0) if context is None else context.shape[1:]
    _advance[(batch, max(1, triton.cdiv(size, BLOCK)))](
        rows.true_token,
        rows.kv_len,
        rows.context,
        rows.slots,
        accepted.length,
        accepted.path,
        accepted.tokens,
        count,
        context,
        told,
        source,
        target,
        rows.slots.stride(0),
        nodes,
        size,
        LENGTH=length,
        COLUMNS=triton.next_power_of_2(length),
        BLOCK=BLOCK,
        num_warps=4,
        **overlapped(count.device),
    )
    return told, source, target


@triton.jit
def _advance(
    true_token_ptr,
    len_ptr,
    row_context_ptr,
    slot_ptr,
    accepted_ptr,
    path_ptr,
    token_ptr,
    count_ptr,
    context_ptr,
    told_ptr,
    source_ptr,
    target_ptr,
    slot_stride,
    nodes,
    size,
    LENGTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    accepted = tl.load(accepted_ptr + row)
    line = row * LENGTH
    if context_ptr is not None:
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        node = tl.load(path_ptr + line + accepted)
        value = tl.load(context_ptr + (row * nodes + node) * size + at, mask=at < size)
        tl.store(row_context_ptr + row * size + at, value, mask=at < size)
    if tl.program_id(1) == 0:
        column = tl.arange(0, COLUMNS)
        real = column < LENGTH
        token = tl.load(token_ptr + line + column, mask=real, other=0)
        told_at = told_ptr + row * (2 + LENGTH)
        tl.store(told_at, accepted)
        tl.store(told_at + 1, tl.load(count_ptr + row))
        tl.store(told_at + 2 + column, token, mask=real)
        tl.store(true_token_ptr + row, tl.load(token_ptr + line + accepted))
        kept = real & (column <= accepted)
        before = tl.load(len_ptr + row)
        path = tl.load(path_ptr + line + column, mask=real, other=0)
        slots_at = slot_ptr + row * slot_stride + before
        source = tl.load(slots_at + path, mask=kept, other=0)
        target = tl.load(slots_at + column, mask=kept, other=0)
        tl.store(source_ptr + line + column, source, mask=real)
        tl.store(target_ptr + line + column, target, mask=real)
        tl.store(len_ptr + row, before + accepted + 1)
