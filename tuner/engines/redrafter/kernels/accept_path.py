"""The longest accepted path of every tree in one launch; see `accept.accept`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait


def accept_path(beams: Tensor, node_of: Tensor, choice: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Walk every tree along the base model's choices.

    Args:
        beams: [B, W, L] token ids, columns contiguous.
        node_of: [B, W, L] node of every cell, contiguous.
        choice: [B, N] token chosen after every node, contiguous.

    Returns:
        What an `Accepted` holds: length [B], path [B, L], tokens [B, L].
    """
    batch, width, length = beams.shape
    accepted = torch.empty((batch,), device=beams.device, dtype=torch.long)
    path = torch.empty((batch, length), device=beams.device, dtype=torch.long)
    tokens = torch.empty_like(path)
    _accept[(batch,)](
        beams,
        node_of,
        choice,
        accepted,
        path,
        tokens,
        beams.stride(0),
        beams.stride(1),
        choice.shape[1],
        WIDTH=width,
        LENGTH=length,
        PADDED=triton.next_power_of_2(width),
        COLUMNS=triton.next_power_of_2(length),
        num_warps=1,
        **overlapped(beams.device),
    )
    return accepted, path, tokens


@triton.jit
def _accept(
    beam_ptr,
    node_ptr,
    choice_ptr,
    length_ptr,
    path_ptr,
    token_ptr,
    sequence_stride,
    beam_stride,
    nodes,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    PADDED: tl.constexpr,
    COLUMNS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    sequence = tl.program_id(0).to(tl.int64)
    node_ptr += sequence * (WIDTH * LENGTH)
    choice_ptr += sequence * nodes
    beam = tl.arange(0, PADDED)
    real = beam < WIDTH
    drafted_at = beam_ptr + sequence * sequence_stride + beam * beam_stride
    alive = tl.where(real, 1, 0)
    run = tl.where(real, 0, -1)
    for column in tl.static_range(LENGTH - 1):
        node = tl.load(node_ptr + beam * LENGTH + column, mask=real, other=0)
        chosen = tl.load(choice_ptr + node)
        drafted = tl.load(drafted_at + column + 1, mask=real, other=-1)
        alive = tl.where(chosen == drafted, alive, 0)
        run += alive
    accepted, best = tl.max(run, 0, return_indices=True)
    tl.store(length_ptr + sequence, accepted.to(tl.int64))
    column = tl.arange(0, COLUMNS)
    real = column < LENGTH
    node = tl.load(node_ptr + best * LENGTH + column, mask=real, other=0)
    tl.store(path_ptr + sequence * LENGTH + column, node, mask=real)
    tl.store(token_ptr + sequence * LENGTH + column, tl.load(choice_ptr + node), mask=real)
