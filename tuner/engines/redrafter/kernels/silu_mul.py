"""The gate of a SwiGLU in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait

BLOCK = 1024


def silu_mul(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up of [T, 2 * size], contiguous: [T, size]."""
    tokens, double = gate_up.shape
    size = double // 2
    out = torch.empty((tokens, size), device=gate_up.device, dtype=gate_up.dtype)
    _silu_mul[(tokens, triton.cdiv(size, BLOCK))](
        gate_up, out, size, BLOCK=BLOCK, num_warps=4, **overlapped(gate_up.device)
    )
    return out


@triton.jit
def silu_gate(gate, up, KIND: tl.constexpr) -> tl.tensor:
    """Return silu(gate) * up of fp32 sums, rounded to KIND as where they are written in between."""
    gate = gate.to(KIND).to(tl.float32)
    return gate / (1 + tl.exp(-gate)) * up.to(KIND).to(tl.float32)


@triton.jit
def _silu_mul(gate_up_ptr, out_ptr, size, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    begin(OVERLAP)
    wait(OVERLAP)
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = at < size
    gate = tl.load(gate_up_ptr + token * 2 * size + at, mask=real, other=0.0)
    up = tl.load(gate_up_ptr + token * 2 * size + size + at, mask=real, other=0.0)
    tl.store(out_ptr + token * size + at, silu_gate(gate, up, gate.dtype), mask=real)
