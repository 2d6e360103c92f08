"""Where the nodes of trees go in the cache and in their texts, in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait


def place_nodes(
    slots: Tensor, kv_len: Tensor, depth: Tensor, count: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the slot, 0 for unused nodes, and the position of every node; both [B, N].

    Args:
        slots: [at least B, capacity] slot of every position.
        kv_len: [at least B] positions before each tree.
        depth: [B, N] distance from the root.
        count: [B] nodes in use.
    """
    batch, nodes = depth.shape
    taken, positions = torch.empty_like(depth), torch.empty_like(depth)
    _place[(batch,)](
        slots,
        kv_len,
        depth,
        count,
        taken,
        positions,
        slots.stride(0),
        nodes,
        BLOCK=triton.next_power_of_2(nodes),
        num_warps=1,
        **overlapped(slots.device),
    )
    return taken, positions


@triton.jit
def _place(
    slot_ptr,
    len_ptr,
    depth_ptr,
    count_ptr,
    taken_ptr,
    position_ptr,
    slot_stride,
    nodes,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    sequence = tl.program_id(0)
    node = tl.arange(0, BLOCK)
    real = node < nodes
    at = sequence * nodes + node
    context = tl.load(len_ptr + sequence)
    used = node < tl.load(count_ptr + sequence)
    slot = tl.load(slot_ptr + sequence * slot_stride + context + node, mask=used & real, other=0)
    tl.store(taken_ptr + at, slot, mask=real)
    depth = tl.load(depth_ptr + at, mask=real, other=0)
    tl.store(position_ptr + at, context + depth, mask=real)
