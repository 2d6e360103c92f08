"""The common prefixes of beams merged into trees in one launch; see `tree.build_tree`.

A beam owns a cell when no earlier beam agrees with it up to there, and then all of its later cells
too. So a beam's own cells are the last ones of it, and one number for each beam, the node before
them, numbers every cell.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait

BLOCK = 1024


def merge_beams(beams: Tensor, room: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Merge `beams` [B, W, L], whose columns lie contiguous, into trees of `room` nodes.

    Returns:
        What a `DraftTree` holds beside the beams: node_of, tokens, depth, sees, count.
    """
    batch, width, length = beams.shape
    node_of = torch.empty((batch, width, length), device=beams.device, dtype=torch.long)
    tokens = torch.empty((batch, room), device=beams.device, dtype=torch.long)
    depth = torch.empty_like(tokens)
    sees = torch.empty((batch, room, room), device=beams.device, dtype=torch.bool)
    count = torch.empty((batch,), device=beams.device, dtype=torch.long)
    _merge[(batch,)](
        beams,
        node_of,
        tokens,
        depth,
        sees.view(torch.uint8),
        count,
        beams.stride(0),
        beams.stride(1),
        room,
        WIDTH=width,
        LENGTH=length,
        PADDED=triton.next_power_of_2(width),
        BLOCK=BLOCK,
        num_warps=4,
        **overlapped(beams.device),
    )
    return node_of, tokens, depth, sees, count


@triton.jit
def _owner(same, left_at, right_at, column, left_real, right_real, right):
    """Return which beams still agree, [i, j], the first that does with each, and their tokens."""
    left_token = tl.load(left_at + column, mask=left_real, other=-1)
    right_token = tl.load(right_at + column, mask=right_real, other=-2)
    same = same & (left_token[:, None] == right_token[None, :])
    return same, tl.min(tl.where(same, right[None, :], 1 << 30), 1), left_token


@triton.jit
def _merge(
    beam_ptr,
    node_ptr,
    token_ptr,
    depth_ptr,
    sees_ptr,
    count_ptr,
    sequence_stride,
    beam_stride,
    room,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    sequence = tl.program_id(0).to(tl.int64)
    beam_ptr += sequence * sequence_stride
    node_ptr += sequence * (WIDTH * LENGTH)
    token_ptr += sequence * room
    depth_ptr += sequence * room
    sees_ptr += sequence * room * room
    _empty_tree(token_ptr, depth_ptr, sees_ptr, tl.load(beam_ptr), room, BLOCK)
    tl.debug_barrier()

    beam = tl.arange(0, PADDED)
    real = beam < WIDTH
    at = beam_ptr + beam * beam_stride
    same = (beam[:, None] >= 0) & real[None, :]
    owned = tl.zeros((PADDED,), tl.int32)
    for column in tl.static_range(LENGTH):
        same, owner, _ = _owner(same, at, at, column, real, real, beam)
        owned += tl.where(real & (owner == beam), 1, 0)
    tl.store(count_ptr + sequence, tl.sum(owned, 0).to(tl.int64))
    before = tl.cumsum(owned, 0) - LENGTH  # the node of a beam's column 0, were it all its own

    same = (beam[:, None] >= 0) & real[None, :]
    for column in tl.static_range(LENGTH):
        same, owner, token = _owner(same, at, at, column, real, real, beam)
        theirs = tl.where(owner[:, None] == beam[None, :], before[None, :], 0)
        node = (tl.sum(theirs, 1) + column).to(tl.int64)
        tl.store(node_ptr + beam * LENGTH + column, node, mask=real)
        own = real & (owner == beam)
        tl.store(token_ptr + node, token, mask=own)
        tl.store(depth_ptr + node, tl.full((PADDED,), column, tl.int64), mask=own)
    tl.debug_barrier()
    for column in tl.static_range(LENGTH):
        own = real & (column >= LENGTH - owned)
        node = tl.load(node_ptr + beam * LENGTH + column, mask=real, other=0)
        for earlier in tl.static_range(column):
            above = tl.load(node_ptr + beam * LENGTH + earlier, mask=real, other=0)
            tl.store(sees_ptr + node * room + above, 1, mask=own)


@triton.jit
def _empty_tree(token_ptr, depth_ptr, sees_ptr, root, room, BLOCK: tl.constexpr):
    """Write a tree of roots that see only themselves."""
    for first in range(0, room, BLOCK):
        node = first + tl.arange(0, BLOCK)
        tl.store(token_ptr + node, tl.zeros((BLOCK,), tl.int64) + root, mask=node < room)
        tl.store(depth_ptr + node, tl.zeros((BLOCK,), tl.int64), mask=node < room)
    for first in range(0, room * room, BLOCK):
        pair = first + tl.arange(0, BLOCK)
        itself = pair // room == pair % room
        tl.store(sees_ptr + pair, itself.to(tl.uint8), mask=pair < room * room)
