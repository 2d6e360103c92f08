"""Rows of a table by index in one launch, set up while the kernel before it ends."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait

BLOCK = 1024


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Return table[index]: rows of `table` [N, size], contiguous, by `index` [...] of integers."""
    size = table.shape[1]
    out = torch.empty((*index.shape, size), device=table.device, dtype=table.dtype)
    _take_rows[(index.numel(), triton.cdiv(size, BLOCK))](
        table, index.contiguous(), out, size, BLOCK=BLOCK, num_warps=4, **overlapped(table.device)
    )
    return out


@triton.jit
def _take_rows(table_ptr, index_ptr, out_ptr, size, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    begin(OVERLAP)
    wait(OVERLAP)
    line = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(index_ptr + line).to(tl.int64)
    value = tl.load(table_ptr + row * size + at, mask=at < size)
    tl.store(out_ptr + line * size + at, value, mask=at < size)
