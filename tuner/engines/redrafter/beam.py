"""Drafting: beam search over the recurrent drafter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuner.engines.redrafter.drafter import Drafter


@dataclass(frozen=True, slots=True)
class Grown:
    """The beams after one more token: which beam each continues and with what, [B, W'] each."""

    parent: Tensor
    token: Tensor


def beam_search(
    drafter: Drafter,
    embed: nn.Embedding,
    true_token: Tensor,
    context: Tensor,
    beam_width: int,
    draft_len: int,
) -> Tensor:
    """Draft `beam_width` continuations of `draft_len` tokens for every sequence.

    Args:
        drafter: the network.
        embed: the base model's input embedding.
        true_token: [B] token the base model already chose.
        context: [B, context_size] hidden state that it was chosen from.
        beam_width: beams kept, W; fewer while there are fewer continuations than that.
        draft_len: tokens drafted per beam, D >= 1.

    Returns:
        [B, W, 1 + D] token ids; column 0 is `true_token`, beams are in order of their score.
    """
    beams = true_token.view(-1, 1, 1)
    for grown in grow(drafter, embed, true_token, context, beam_width, draft_len):
        beams = torch.cat((pick(beams, grown.parent), grown.token.unsqueeze(-1)), dim=-1)
    return beams


def grow(
    drafter: Drafter,
    embed: nn.Embedding,
    true_token: Tensor,
    context: Tensor,
    beam_width: int,
    draft_len: int,
) -> Iterator[Grown]:
    """Yield what the search of `beam_search` keeps at each of its `draft_len` depths."""
    token = true_token.unsqueeze(1)
    context = context.unsqueeze(1)
    p, d = drafter.start(context, embed(token).to(context.dtype))
    state = torch.zeros_like(d)
    score = torch.zeros(token.shape, device=context.device)
    for _ in range(draft_len):
        state = drafter.next_state(embed(token).to(state.dtype), state, d)
        score, parent, index = extend(drafter.logits(p, state), score, beam_width)
        token, state = drafter.draft_vocab[index], pick(state, parent)
        yield Grown(parent, token)


def extend(logits: Tensor, score: Tensor, beam_width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Extend beams of `score` [B, W] by `logits` [B, W, V]; score, parent and token of the best."""
    _, width, vocab = logits.shape
    keep = min(beam_width, width * vocab)
    if logits.is_cuda and not logits.requires_grad:  # the kernel has no backward
        from tuner.engines.redrafter.kernels.beam_step import beam_step

        return beam_step(logits, score, keep)
    logits = logits.float()
    top, token = logits.topk(min(keep, vocab), dim=-1)
    total = (score.unsqueeze(-1) + top - logits.logsumexp(-1, keepdim=True)).flatten(1)
    score, chosen = total.topk(keep, dim=-1)
    return score, chosen // token.shape[-1], token.flatten(1).gather(1, chosen)


def pick(x: Tensor, parent: Tensor) -> Tensor:
    """Pick beam `parent[b, w]` for every new beam w: x [B, W, C] -> [B, W', C]."""
    return x.gather(1, parent.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
