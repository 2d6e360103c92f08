"""Acceptance: which drafted tokens the base model would have written itself.

One rule serves greedy decoding and sampling. At every node of the tree the base model chooses a
token from its own distribution (the argmax, or one sample). The walk starts at the root and goes to
a child while the choice equals that child's token; the first choice that matches no child is the
extra token of the step. Every committed token was drawn from the base model's distribution given
its own prefix, so the output distribution is exactly that of plain decoding for any tree: drafts
decide how far a step gets, never what is written.

Source: the rule is derived here. The published min(1, p/q) rule assumes drafts sampled from q;
beam search drafts are deterministic, so that rule would change the distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.engines.redrafter.tree import DraftTree


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the verifier accepted. L = 1 + draft_len; entries past `length` are leftovers."""

    length: Tensor  # [B] accepted drafted tokens, 0..D
    path: Tensor  # [B, L] nodes from the root along the accepted beam
    tokens: Tensor  # [B, L] the accepted tokens and then the extra one: length + 1 of them


def choose(logits: Tensor, temperature: Tensor | None, generator: torch.Generator | None) -> Tensor:
    """Choose a token in every row of `logits` [T, V].

    `temperature` [T] is 0 for the argmax; None means 0 everywhere.
    """
    greedy = _largest(logits)
    if temperature is None:
        return greedy
    warm = temperature > 0
    scaled = logits.float() / torch.where(warm, temperature, 1.0).unsqueeze(1)
    # A sample without reading anything back: argmax of p / Exponential(1) is distributed as p.
    noise = torch.empty_like(scaled).exponential_(generator=generator)
    sampled = (scaled.softmax(-1) / noise).argmax(-1)
    return torch.where(warm, sampled, greedy)


def _largest(logits: Tensor) -> Tensor:
    if logits.is_cuda:
        from tuner.engines.redrafter.kernels.argmax import argmax

        return argmax(logits)
    return logits.argmax(-1)


def accept(tree: DraftTree, choice: Tensor) -> Accepted:
    """Walk every tree along the base model's choices [B, N]."""
    batch, width, length = tree.beams.shape
    if length == 1:
        root = tree.node_of[:, 0]
        return Accepted(root[:, 0], root, choice)
    if choice.is_cuda:
        from tuner.engines.redrafter.kernels.accept_path import accept_path

        return Accepted(*accept_path(tree.beams, tree.node_of, choice))
    chosen = choice.gather(1, tree.node_of.flatten(1)).view(batch, width, length)
    match = tree.beams[..., 1:] == chosen[..., :-1]
    run = match.long().cumprod(-1).sum(-1)  # [B, W]
    accepted, best = run.max(-1)
    beam = best.view(batch, 1, 1).expand(-1, 1, length)
    return Accepted(
        accepted, tree.node_of.gather(1, beam).squeeze(1), chosen.gather(1, beam).squeeze(1)
    )
