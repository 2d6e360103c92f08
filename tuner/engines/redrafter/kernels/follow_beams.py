"""What the chosen beams go on with, in one launch: their tokens, states and last embeddings."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait

BLOCK = 1024


def follow_beams(
    beams: Tensor, state: Tensor, parent: Tensor, index: Tensor, vocab: Tensor, table: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Lengthen the chosen beams by a token each.

    Args:
        beams: [B, W, L] tokens, contiguous.
        state: [B, W, S], contiguous.
        parent: [B, K] beam that each chosen one continues.
        index: [B, K] of its token in `vocab`.
        vocab: [V] token ids.
        table: [N, H] embedding of every token, contiguous.

    Returns:
        Beams [B, K, L + 1], states [B, K, S], and embeddings of the last tokens [B, K, H] in the
        dtype of `table`.
    """
    batch, width, length = beams.shape
    keep, size, hidden = parent.shape[1], state.shape[2], table.shape[1]
    longer = beams.new_empty((batch, keep, length + 1))
    picked = state.new_empty((batch, keep, size))
    embedding = table.new_empty((batch, keep, hidden))
    _follow_beams[(batch * keep, triton.cdiv(max(size, hidden), BLOCK))](
        beams,
        state,
        parent,
        index,
        vocab,
        table,
        longer,
        picked,
        embedding,
        size,
        hidden,
        KEEP=keep,
        WIDTH=width,
        LENGTH=length,
        PADDED=triton.next_power_of_2(length + 1),
        BLOCK=BLOCK,
        num_warps=4,
        **overlapped(beams.device),
    )
    return longer, picked, embedding


@triton.jit
def _follow_beams(
    beam_ptr,
    state_ptr,
    parent_ptr,
    index_ptr,
    vocab_ptr,
    table_ptr,
    longer_ptr,
    picked_ptr,
    embedding_ptr,
    size,
    hidden,
    KEEP: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    line = tl.program_id(0).to(tl.int64)
    beam = line // KEEP * WIDTH + tl.load(parent_ptr + line)
    token = tl.load(vocab_ptr + tl.load(index_ptr + line)).to(tl.int64)
    if tl.program_id(1) == 0:
        column = tl.arange(0, PADDED)
        before = tl.load(beam_ptr + beam * LENGTH + column, mask=column < LENGTH, other=0)
        before = tl.where(column < LENGTH, before, token)
        tl.store(longer_ptr + line * (LENGTH + 1) + column, before, mask=column <= LENGTH)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(state_ptr + beam * size + at, mask=at < size)
    tl.store(picked_ptr + line * size + at, value, mask=at < size)
    value = tl.load(table_ptr + token * hidden + at, mask=at < hidden)
    tl.store(embedding_ptr + line * hidden + at, value, mask=at < hidden)
