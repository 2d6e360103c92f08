"""Rotary embedding of query and key heads, and keys and values into their slots, in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait
from tuner.engines.redrafter.quant.fp8 import LARGEST

HEADS_PER_PROGRAM = 4


def rotate_store(heads: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor) -> Tensor:
    """Rotate queries and keys, keep keys and values, and return the queries.

    Args:
        heads: [T, heads + 2 * kv_heads, dim] queries, keys and values; a token's lie contiguous.
        cos: [T, 1, dim].
        sin: [T, 1, dim], signed as `rotation_table` gives it.
        cache: [2, all slots, kv_heads, dim] keys and values, narrowed where they are kept in FP8.
        slots: [T] where each token's go.

    Returns:
        [T, heads, dim] in the dtype of `heads`.
    """
    tokens, every, dim = heads.shape
    kv_heads = cache.shape[2]
    queries = every - 2 * kv_heads
    out = torch.empty((tokens, queries, dim), device=heads.device, dtype=heads.dtype)
    _rotate_store[(tokens, triton.cdiv(every, HEADS_PER_PROGRAM))](
        heads,
        cos,
        sin,
        out,
        cache,
        slots,
        heads.stride(0),
        cos.stride(0),
        sin.stride(0),
        cache.stride(0),
        HEADS=queries,
        KV_HEADS=kv_heads,
        DIM=dim,
        BLOCK=HEADS_PER_PROGRAM,
        BLOCK_DIM=triton.next_power_of_2(dim),
        LARGEST=LARGEST if cache.dtype == torch.float8_e4m3fn else None,
        num_warps=2,
        **overlapped(heads.device),
    )
    return out


@triton.jit
def _rotate_store(
    x_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    cache_ptr,
    slot_ptr,
    x_stride,
    cos_stride,
    sin_stride,
    side_stride,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    LARGEST: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    token = tl.program_id(0)
    head = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    dim = tl.arange(0, BLOCK_DIM)[None, :]
    real = (head < HEADS + 2 * KV_HEADS) & (dim < DIM)
    x_at = x_ptr + token * x_stride + head * DIM
    x = tl.load(x_at + dim, mask=real, other=0.0).to(tl.float32)
    turned = tl.load(x_at + (dim + DIM // 2) % DIM, mask=real, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + token * cos_stride + dim, mask=dim < DIM, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + token * sin_stride + dim, mask=dim < DIM, other=0.0).to(tl.float32)
    x = tl.where(head < HEADS + KV_HEADS, x * cos + turned * sin, x)
    tl.store(out_ptr + (token * HEADS + head) * DIM + dim, x, mask=real & (head < HEADS))
    side, kv_head = (head - HEADS) // KV_HEADS, (head - HEADS) % KV_HEADS
    slot = tl.load(slot_ptr + token).to(tl.int64)
    if LARGEST is not None:
        x = tl.clamp(x, -LARGEST, LARGEST)
    at = side.to(tl.int64) * side_stride + (slot * KV_HEADS + kv_head) * DIM + dim
    tl.store(cache_ptr + at, x.to(cache_ptr.dtype.element_ty), mask=real & (head >= HEADS))
