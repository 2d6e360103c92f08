"""The tensor work that beam searches share."""

from __future__ import annotations

import torch
from torch import Tensor


def expand(score: Tensor, logits: Tensor, beam_width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Choose the best continuations by one token.

    Args:
        score: [B, W] log-probability of every beam.
        logits: [B, W, V] of what follows it.
        beam_width: how many to keep; fewer while there are fewer.

    Returns:
        Their scores, the beams they continue and the tokens they add, [B, W'] each.
    """
    logits = logits.float()
    top, token = logits.topk(min(beam_width, logits.shape[-1]), dim=-1)
    total = (score.unsqueeze(-1) + top - logits.logsumexp(-1, keepdim=True)).flatten(1)
    score, chosen = total.topk(min(beam_width, total.shape[-1]), dim=-1)
    return score, chosen // token.shape[-1], token.flatten(1).gather(1, chosen)


def take(x: Tensor, parent: Tensor) -> Tensor:
    """Pick beam `parent[b, w]` of `x` [B, W, C] for every new beam: [B, W', C]."""
    return x.gather(1, parent.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


def repeat_to_width(beams: Tensor, beam_width: int) -> Tensor:
    """Fill `beams` [B, W', L] up to [B, W, L]: copies cost nothing, the tree merges them."""
    missing = beam_width - beams.shape[1]
    if missing <= 0:
        return beams
    return torch.cat((beams, beams[:, -1:].expand(-1, missing, -1)), dim=1)
