"""Keys and values of every layer moved to other slots in one launch.

A program moves a piece of one layer's keys or values for all slots of a sequence: it has read them
all before it writes any, and no other program touches that piece.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait

BLOCK = 256


def move_slots(cache: Tensor, source: Tensor, target: Tensor) -> None:
    """Copy slots of every layer.

    Args:
        cache: [layers, 2, all slots, kv_heads, dim], contiguous.
        source: [B, L]; a slot is only in one row of `source` and `target`, except the same slot in
            both places.
        target: [B, L].
    """
    layers, sides, slots, kv_heads, dim = cache.shape
    batch, length = source.shape
    size = kv_heads * dim
    _move_slots[(layers * sides, batch, triton.cdiv(size, BLOCK))](
        cache,
        source,
        target,
        slots,
        length,
        source.stride(0),
        target.stride(0),
        SIZE=size,
        PADDED=triton.next_power_of_2(length),
        BLOCK=BLOCK,
        num_warps=4,
        **overlapped(cache.device),
    )


@triton.jit
def _move_slots(
    cache_ptr,
    source_ptr,
    target_ptr,
    slots,
    length,
    source_stride,
    target_stride,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    side = cache_ptr + tl.program_id(0).to(tl.int64) * slots * SIZE
    sequence, step = tl.program_id(1), tl.arange(0, PADDED)
    real = step < length
    source = tl.load(source_ptr + sequence * source_stride + step, mask=real, other=0)
    target = tl.load(target_ptr + sequence * target_stride + step, mask=real, other=0)
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)[None, :]
    moved = real[:, None] & (at < SIZE)
    value = tl.load(side + source.to(tl.int64)[:, None] * SIZE + at, mask=moved)
    tl.debug_barrier()
    tl.store(side + target.to(tl.int64)[:, None] * SIZE + at, value, mask=moved)
