"""The product of a few rows with INT4 weights, at a speed that lets a small tree cost little.

Its kernel is in CUDA C++, because a warp that holds rows in registers and copies its own weights
cannot be said in Triton.

NOTE: sums are of 128 + code, of which 128 + zero times the sum of the inputs is taken away in fp32.
"""

from __future__ import annotations

import logging
from functools import cache

import torch
from torch import Tensor

from tuner.engines.redrafter.kernels.compiled import Kernel, can_compile
from tuner.engines.redrafter.kernels.processors import processors
from tuner.engines.redrafter.kernels.stages import fitting_stages, room
from tuner.errors import EngineFailure

GROUP_SIZES = (64, 128)
MOST_ROWS = 24  # beyond them the kernel in Triton is as fast
_WARPS = 8
_STAGES = 3
_PARTS = 4  # that the slices of the inputs are shared out in at most
_log = logging.getLogger(__name__)


def suits(rows: int, group_size: int, device: torch.device) -> bool:
    """Whether this is the kernel for so many rows of such weights, and can be had."""
    few = 0 < rows <= MOST_ROWS and group_size in GROUP_SIZES
    return few and device.type == "cuda" and _can_be_had(device)


@cache
def _can_be_had(device: torch.device) -> bool:
    if torch.cuda.get_device_capability(device) < (8, 0) or not can_compile():
        return False
    try:
        _kernel(device, EIGHTS=1, GROUP=128, GROUPS=2, STAGES=_STAGES, GATED=0, PARTS=1, BIAS=2)
    except EngineFailure as error:
        _log.warning("%s; Triton multiplies a few rows by INT4 weights instead", error)
        return False
    return True


@cache
def _kernel(device: torch.device, **constants: int) -> Kernel:
    return Kernel(device, "int4_few_rows", **constants)


def int4_few_rows(
    x: Tensor,
    codes: Tensor,
    scale_and_zero: Tensor,
    bias: Tensor | None = None,
    gated: bool = False,
    joined: bool = True,
) -> Tensor:
    """Multiply at most 24 rows by INT4 weights.

    Args:
        x: [T, in] bf16, contiguous.
        codes: int32 [out, in / 8] in the order of `int4_order.ordered`.
        scale_and_zero: int32 [out, groups], `int4_order.scale_and_zero`; groups of 64 or 128.
        bias: [out], bf16 or fp32.
        gated: the first half of the outputs are gates of the second half.
        joined: add the parts up.

    Returns:
        [T, out] in bf16; gated, silu(first half) * second half, [T, out / 2]. Not joined, what is
        to be added up to it, [parts, T, out] in fp32, where there are parts.
    """
    rows, inputs = x.shape
    groups = scale_and_zero.shape[1]
    group = inputs // groups
    outputs = scale_and_zero.shape[0] // (2 if gated else 1)
    eights = -(-rows // 8)
    tiles = -(-outputs // (8 if gated else 16))
    most_parts = 1 if joined or gated else _PARTS
    held, parts, blocks, stages, shared = _plan(groups, group, tiles, eights, most_parts, x.device)
    out = torch.empty((rows, outputs), device=x.device, dtype=x.dtype)
    if parts > 1:
        out = torch.empty((parts, rows, outputs), device=x.device, dtype=torch.float32)
    kernel = _kernel(
        x.device,
        EIGHTS=eights,
        GROUP=group,
        GROUPS=held,
        STAGES=stages,
        GATED=int(gated),
        PARTS=parts,
        BIAS=2 if bias is None else bias.element_size(),
    )
    kernel(
        blocks * parts,
        32 * _WARPS,
        shared,
        x,
        codes,
        scale_and_zero,
        bias,
        out,
        rows,
        groups,
        outputs,
    )
    return out


def _plan(
    groups: int, group: int, tiles: int, eights: int, most_parts: int, device: torch.device
) -> tuple[int, int, int, int, int]:
    """Choose a block's work; the fastest of some on an H200.

    Returns:
        Groups that a warp holds, a power of two; parts of the slices; blocks of a part; stages; and
        bytes of shared memory.
    """
    needed = 1 << (-(-groups // _WARPS) - 1).bit_length()
    held = min((512 if eights == 2 else 256) // group, needed)
    slices = -(-groups // (_WARPS * held))
    parts = min(most_parts, slices)
    # NOTE: with eight rows a block leaves half of the registers to another.
    blocks = max(1, processors(device) * (2 if eights == 1 else 1) // parts)
    stage = _WARPS * 16 * held * (group // 2 + 4)
    sums = 512 * eights  # of a tile
    beside = 2 * _WARPS * sums
    if slices > parts:  # a block keeps the sums of all its tiles from slice to slice
        most_tiles = (room(device) - beside - 2 * stage) // sums
        blocks = max(blocks, -(-tiles // most_tiles))
        beside += -(-tiles // min(blocks, tiles)) * sums
    stages = fitting_stages(_STAGES, stage, device, beside)
    return held, parts, min(blocks, tiles), stages, stages * stage + beside
