"""Beam search in the loop: the true path against the beams that the search really visits.

A draft fails where the true tokens fall out of the beams. So the drafter searches as in serving,
and as long as the true prefix is still among the beams, at every depth

    loss = -log( Q(true prefix) / (Q(true prefix) + sum of Q over the other beams) )

where Q is the product of the drafter's probabilities along a prefix. Once the true prefix is lost,
the search can no longer be helped and later depths do not count. The gradient reaches the states
of the beams as well as those of the true path.

The loss depends on the network only through log-probabilities of chosen tokens, so its gradient is
a cross-entropy of those tokens with signed weights: logits are never kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.training.loss import TEXT_ONLY, Targets, distillation_loss


@dataclass(frozen=True, slots=True)
class _Depth:
    """One drafted position. Slot 0 is the true path, the others are beams."""

    exits: Tensor  # [P, slots before, exit_dim] what the head read
    parent: Tensor  # [P, slots] slot of the depth before
    token: Tensor  # [P, slots] draft vocabulary index
    pull: Tensor  # [P, slots] derivative of the loss by the log-probability of each prefix


def beam_contrast(
    drafter: Drafter, embed: nn.Embedding, context: Tensor, truth: Tensor, beam_width: int
) -> Tensor:
    """Return the mean loss over the depths that count.

    Args:
        drafter: the network.
        embed: the base model's input embedding.
        context: [P, context_size].
        truth: [P, 1 + D] the true token and what follows it; -1 past the answer's end.
        beam_width: beams kept.
    """
    depths, losses, counted = _search(drafter, embed, context, truth, beam_width)
    count = counted.sum().clamp(min=1)
    pull = torch.zeros_like(depths[-1].pull)
    exits, tokens, weights = [], [], []
    for index in reversed(range(len(depths))):
        depth = depths[index]
        pull = depth.pull + pull
        parent = depth.parent.unsqueeze(-1).expand(-1, -1, depth.exits.shape[-1])
        exits.append(depth.exits.gather(1, parent).flatten(0, 1))
        tokens.append(depth.token.flatten())
        weights.append(-pull.flatten() / count)
        before = pull.new_zeros(depth.exits.shape[:2])
        pull = before.scatter_add(1, depth.parent, pull)
    token = torch.cat(tokens)
    surrogate, _, _ = distillation_loss(
        torch.cat(exits),
        drafter.head.weight,
        Targets(text=token, choice=token),
        torch.arange(len(token), device=token.device),
        torch.cat(weights),
        TEXT_ONLY,
    )
    return surrogate + ((losses * counted).sum() / count - surrogate).detach()


def _search(
    drafter: Drafter, embed: nn.Embedding, context: Tensor, truth: Tensor, beam_width: int
) -> tuple[list[_Depth], Tensor, Tensor]:
    """Search beside the true path; return the depths, losses [D, P] and whether each counts."""
    rank = torch.full((drafter.config.vocab_size,), -1, device=truth.device)
    rank[drafter.draft_vocab] = torch.arange(len(drafter.draft_vocab), device=truth.device)
    p, d = drafter.start(context.unsqueeze(1), embed(truth[:, :1]).to(context.dtype))
    fed = truth[:, :1].expand(-1, 2)
    state = torch.zeros_like(d).expand(-1, 2, -1)
    score = torch.zeros(fed.shape, device=truth.device)
    on_path = torch.ones_like(fed[:, 1:], dtype=torch.bool)
    depths, losses, counts = [], [], []
    for column in range(1, truth.shape[1]):
        state = drafter.next_state(embed(fed).to(state.dtype), state, d)
        exits = drafter.exit(p, state)
        target = torch.where(truth[:, column] >= 0, rank[truth[:, column].clamp(min=0)], -1)
        counted = on_path.any(1) & (target >= 0)
        with torch.no_grad():
            log_q = drafter.head(exits).float().log_softmax(-1)
            score, parent, token = _extend(score, log_q, target.clamp(min=0), beam_width)
            on_path = on_path.gather(1, parent[:, 1:] - 1) & (token[:, 1:] == target[:, None])
            rivals = score.clone()
            rivals[:, 1:].masked_fill_(on_path, float("-inf"))
            log_share = rivals.log_softmax(-1)
            losses.append(-log_share[:, 0])
            share = log_share.exp()
            share[:, 0] -= 1
        depths.append(_Depth(exits, parent, token, share * counted[:, None]))
        counts.append(counted)
        state = state.gather(1, parent.unsqueeze(-1).expand(-1, -1, state.shape[-1]))
        fed = drafter.draft_vocab[token]
    return depths, torch.stack(losses), torch.stack(counts)


def _extend(
    score: Tensor, log_q: Tensor, target: Tensor, beam_width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Lengthen the true path by `target` and the beams by what scores best."""
    vocab = log_q.shape[-1]
    total = (score.unsqueeze(-1) + log_q)[:, 1:].flatten(1)
    best, chosen = total.topk(min(beam_width, total.shape[1]), dim=-1)
    true_score = score[:, :1] + log_q[:, 0].gather(1, target[:, None])
    parent = torch.cat((torch.zeros_like(target[:, None]), chosen // vocab + 1), dim=1)
    token = torch.cat((target[:, None], chosen % vocab), dim=1)
    return torch.cat((true_score, best), dim=1), parent, token
