"""The largest of every row of logits, in two launches.

The first takes the best of every block of a row, the second the best of the blocks. Equal logits:
the first one is taken within a block, and the first block.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait

BLOCK = 4096


def argmax(logits: Tensor) -> Tensor:
    """Return the index [T] of the largest entry in every row of `logits` [T, V], contiguous."""
    rows, size = logits.shape
    blocks = triton.cdiv(size, BLOCK)
    best = torch.empty((rows, blocks), device=logits.device, dtype=torch.float32)
    index = torch.empty((rows, blocks), device=logits.device, dtype=torch.int32)
    out = torch.empty((rows,), device=logits.device, dtype=torch.long)
    overlap = overlapped(logits.device)
    _best_of_block[(rows, blocks)](logits, best, index, size, BLOCK=BLOCK, num_warps=8, **overlap)
    padded = triton.next_power_of_2(blocks)
    _best_block[(rows,)](best, index, out, BLOCKS=blocks, PADDED=padded, num_warps=1, **overlap)
    return out


@triton.jit
def _best_of_block(
    logit_ptr, best_ptr, index_ptr, size, BLOCK: tl.constexpr, OVERLAP: tl.constexpr
):
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    line = row * tl.num_programs(1) + block
    at = block * BLOCK + tl.arange(0, BLOCK)
    logit = tl.load(logit_ptr + row * size + at, mask=at < size, other=float("-inf"))
    best, where = tl.max(logit.to(tl.float32), 0, return_indices=True)
    tl.store(best_ptr + line, best)
    tl.store(index_ptr + line, block * BLOCK + where)


@triton.jit
def _best_block(
    best_ptr, index_ptr, out_ptr, BLOCKS: tl.constexpr, PADDED: tl.constexpr, OVERLAP: tl.constexpr
):
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0)
    block = tl.arange(0, PADDED)
    best = tl.load(best_ptr + row * BLOCKS + block, mask=block < BLOCKS, other=float("-inf"))
    _, where = tl.max(best, 0, return_indices=True)
    tl.store(out_ptr + row, tl.load(index_ptr + row * BLOCKS + where).to(tl.int64))
