"""Kernels that are launched while the one before them still runs, on Hopper and newer.

Some hundreds of kernels a step wait for each other, and each wait costs about as long as a small
kernel runs. With programmatic dependent launch a kernel is set up, and brings weights near, before
the one before it has ended. Every kernel that is launched so says `begin` first, and `wait` before
it touches anything that another kernel writes or reads; so all that ran before is over then.

Programs that are launched early seem to gather on the processors that are free first. A kernel
whose programs all run at once had better have such large ones that each has a processor to itself.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

_LINE_BYTES = tl.constexpr(128)


@cache
def overlapped(device: torch.device) -> dict[str, bool]:
    """Return the options of a launch on `device`: OVERLAP, and what the launcher takes for it."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0):
        return {"OVERLAP": True, "launch_pdl": True}
    return {"OVERLAP": False}


@triton.jit
def begin(OVERLAP: tl.constexpr) -> None:
    """Let the next kernel be launched."""
    if OVERLAP:
        gdc_launch_dependents()


@triton.jit
def fetch(start, COUNT: tl.constexpr) -> None:
    """Bring COUNT numbers from every address of `start` [N] to the L2 cache, waiting for none."""
    each: tl.constexpr = _LINE_BYTES // (start.dtype.element_ty.primitive_bitwidth // 8)
    line = tl.arange(0, triton.next_power_of_2(triton.cdiv(COUNT, each)))
    at = start[:, None] + tl.minimum(line * each, COUNT - 1)[None, :]
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [at], tl.int32, is_pure=False, pack=1
    )


@triton.jit
def wait(OVERLAP: tl.constexpr) -> None:
    """Wait until everything that was launched before has ended."""
    if OVERLAP:
        gdc_wait()
