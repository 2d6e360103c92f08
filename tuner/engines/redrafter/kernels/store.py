"""Keys and values into their slots in one launch, narrowed where the cache keeps FP8."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.quant.fp8 import LARGEST


def store(keys: Tensor, values: Tensor, cache: Tensor, slots: Tensor) -> None:
    """Write keys and values [T, kv_heads, dim] to `slots` [T] of `cache` [2, all slots, ...]."""
    tokens, kv_heads, dim = keys.shape
    size = kv_heads * dim
    _store[(tokens, 2)](
        keys,
        values,
        cache,
        slots,
        keys.stride(0),
        values.stride(0),
        cache.stride(0),
        LARGEST=LARGEST if cache.dtype == torch.float8_e4m3fn else None,
        SIZE=size,
        BLOCK=triton.next_power_of_2(size),
        num_warps=4,
    )


@triton.jit
def _store(
    key_ptr,
    value_ptr,
    cache_ptr,
    slot_ptr,
    key_stride,
    value_stride,
    side_stride,
    LARGEST: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token, side = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    real = at < SIZE
    slot = tl.load(slot_ptr + token).to(tl.int64)
    if side == 0:
        row = tl.load(key_ptr + token * key_stride + at, mask=real)
    else:
        row = tl.load(value_ptr + token * value_stride + at, mask=real)
    if LARGEST is not None:
        row = tl.clamp(row.to(tl.float32), -LARGEST, LARGEST).to(cache_ptr.dtype.element_ty)
    tl.store(cache_ptr + side.to(tl.int64) * side_stride + slot * SIZE + at, row, mask=real)
