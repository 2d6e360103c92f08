"""Drafting: beam search over the recurrent drafter."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tuner.engines.redrafter.dense import takes_kernels
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
    token, context = true_token.unsqueeze(1), context.unsqueeze(1)
    beams = token.unsqueeze(2)
    embedding = embed(token).to(context.dtype)
    p, d = drafter.start(context, embedding)
    state = torch.zeros_like(d)
    score = torch.zeros(token.shape, device=context.device)
    for _ in range(draft_len):
        state = drafter.next_state(embedding, state, d)
        score, parent, index = extend(drafter.logits(p, state), score, beam_width)
        beams, state, embedding = follow(beams, state, parent, index, drafter.draft_vocab, embed)
    return beams


def follow(
    beams: Tensor,
    state: Tensor,
    parent: Tensor,
    index: Tensor,
    draft_vocab: Tensor,
    embed: nn.Embedding,
) -> tuple[Tensor, Tensor, Tensor]:
    """Lengthen beams [B, W, L] by tokens `index` of `draft_vocab`, each after beam `parent`.

    Returns:
        Beams [B, W', L + 1], their states [B, W', S] of those before, and embeddings of the tokens
        [B, W', hidden] in the dtype of `state`.
    """
    if takes_kernels(state):
        from tuner.engines.redrafter.kernels.follow_beams import follow_beams

        longer, state, embedding = follow_beams(
            beams, state, parent, index, draft_vocab, embed.weight
        )
        return longer, state, embedding.to(state.dtype)
    token = draft_vocab[index]
    beams, state = lengthen(beams, parent, token), pick(state, parent)
    return beams, state, embed(token).to(state.dtype)


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


def lengthen(beams: Tensor, parent: Tensor, token: Tensor) -> Tensor:
    """Continue beam `parent[b, w]` of `beams` [B, W, L] with `token[b, w]`: [B, W', L + 1]."""
    return torch.cat((pick(beams, parent), token.unsqueeze(-1)), dim=-1)


def pick(x: Tensor, parent: Tensor) -> Tensor:
    """Pick beam `parent[b, w]` for every new beam w: x [B, W, C] -> [B, W', C]."""
    return x.gather(1, parent.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
