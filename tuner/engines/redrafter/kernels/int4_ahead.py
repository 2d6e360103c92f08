"""Weights that are brought near while the kernel before still makes the activations."""

from __future__ import annotations

import triton
import triton.language as tl

_LINE_BYTES = tl.constexpr(128)


@triton.jit
def fetch(start, COUNT: tl.constexpr) -> None:
    """Bring COUNT numbers from every address of `start` [N] to the L2 cache, waiting for none."""
    each: tl.constexpr = _LINE_BYTES // (start.dtype.element_ty.primitive_bitwidth // 8)
    line = tl.arange(0, triton.next_power_of_2(triton.cdiv(COUNT, each)))
    at = start[:, None] + tl.minimum(line * each, COUNT - 1)[None, :]
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [at], tl.int32, is_pure=False, pack=1
    )
