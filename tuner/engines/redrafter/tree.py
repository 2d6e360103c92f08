"""Dynamic tree attention: beams that share a prefix share its nodes.

All beams have the same length, so a cell (beam i, column k) duplicates an earlier beam exactly when
their first k + 1 tokens agree; it is then owned by the first such beam. The cells that own
themselves are the nodes of the tree, numbered row by row, so that node 0 is the root. Everything is
tensor operations over the whole batch.

Source: Zhang et al., Recurrent Drafter (arXiv 2403.09919), section on dynamic tree attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class DraftTree:
    """The packed trees of a batch. N is the room per sequence; unused nodes come last."""

    beams: Tensor  # [B, W, 1 + D] token ids
    node_of: Tensor  # [B, W, 1 + D] node of every cell
    tokens: Tensor  # [B, N] token ids; unused nodes repeat the root
    depth: Tensor  # [B, N] distance from the root
    sees: Tensor  # [B, N, N] bool: node i attends to node j (its ancestors and itself)
    count: Tensor  # [B] nodes in use, root included


def root_only(true_token: Tensor) -> DraftTree:
    """Return trees without drafts for `true_token` [B]: plain decoding."""
    tokens = true_token.unsqueeze(1)
    zero = torch.zeros_like(tokens)
    sees = torch.ones_like(tokens, dtype=torch.bool).unsqueeze(1)
    return DraftTree(tokens.unsqueeze(1), zero.unsqueeze(1), tokens, zero, sees, zero[:, 0] + 1)


def build_tree(beams: Tensor, room: int | None = None) -> DraftTree:
    """Merge the common prefixes of `beams` [B, W, L], L = 1 + draft_len.

    The room N is what the largest tree of the batch needs, which is read back, or `room`, which
    must be enough: 1 + W * (L - 1) always is.
    """
    if beams.is_cuda and room:
        from tuner.engines.redrafter.kernels.merge_beams import merge_beams

        return DraftTree(beams, *merge_beams(beams, room))
    batch, width, length = beams.shape
    node_of, keep = _number_nodes(beams)
    count = keep.flatten(1).sum(1)
    room = room or int(count.max())

    # Scatter the kept cells to their nodes; dropped cells go to an overflow slot past the room.
    slot = torch.where(keep, node_of, room).flatten(1)
    columns = torch.arange(length, device=beams.device).expand(batch, width, length).flatten(1)
    tokens = beams[:, 0, :1].repeat(1, room + 1).scatter(1, slot, beams.flatten(1))[:, :room]
    depth = beams.new_zeros(batch, room + 1).scatter(1, slot, columns)[:, :room]

    sees = _visibility(node_of, keep, slot, room)
    return DraftTree(beams, node_of, tokens, depth, sees, count)


def _number_nodes(beams: Tensor) -> tuple[Tensor, Tensor]:
    """Return the node of every cell [B, W, L] and whether the cell owns it."""
    batch, width, length = beams.shape
    same = (beams.unsqueeze(2) == beams.unsqueeze(1)).cummin(-1).values  # [B, i, j, L]
    owner = same.to(torch.uint8).argmax(2)  # first beam with the same prefix
    keep = owner == torch.arange(width, device=beams.device).view(1, width, 1)
    number = keep.flatten(1).cumsum(1).view(batch, width, length) - 1
    return number.gather(1, owner), keep


def _visibility(node_of: Tensor, keep: Tensor, slot: Tensor, room: int) -> Tensor:
    """A node sees the nodes of its own beam up to its own depth, [B, N, N]."""
    batch, width, length = node_of.shape
    earlier = torch.ones(length, length, dtype=torch.bool, device=node_of.device).tril()
    # Paths of every cell: [B, W, L, L], the nodes at columns 0..L-1 of its beam; later ones
    # are sent to the overflow column.
    path = torch.where(earlier, node_of.unsqueeze(2), room).view(batch, width * length, length)
    sees = torch.zeros(batch, room + 1, room + 1, dtype=torch.bool, device=node_of.device)
    rows = slot.unsqueeze(-1).expand_as(path)
    flat = (rows * (room + 1) + path).flatten(1)
    sees.view(batch, -1).scatter_(1, flat, True)
    sees = sees[:, :room, :room]
    return sees | torch.eye(room, dtype=torch.bool, device=node_of.device)
