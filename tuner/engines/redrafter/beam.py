"""Drafting: beam search over the recurrent drafter."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tuner.engines.redrafter.drafter import Drafter


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
    batch = true_token.shape[0]
    beams = true_token.view(batch, 1, 1)
    context = context.unsqueeze(1)
    p, d = drafter.start(context, embed(beams[..., -1]).to(context.dtype))
    state = torch.zeros_like(d)
    score = torch.zeros(batch, 1, device=context.device)
    for _ in range(draft_len):
        state = drafter.next_state(embed(beams[..., -1]).to(state.dtype), state, d)
        score, parent, token = extend(drafter.logits(p, state), score, beam_width)
        token = drafter.draft_vocab[token]
        beams = torch.cat((pick(beams, parent), token.unsqueeze(-1)), dim=-1)
        state = pick(state, parent)
    return beams


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
