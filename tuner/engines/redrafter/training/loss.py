"""The distillation loss, without ever holding the logits of a whole batch.

Cross-entropy of the drafter's distribution q against a mixture of what the base model believes,
restricted to the draft vocabulary, and what it would choose at temperature 0:

    target = soft_share * softmax(base logits) + (1 - soft_share) * onehot(argmax)

The gradient of the logits is q - target, so it is formed chunk by chunk in the forward pass and the
logits are forgotten at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def mixed_targets(logits: Tensor, soft_share: float) -> Tensor:
    """Return the targets [T, V] for base logits [T, V] over the draft vocabulary (fp32)."""
    best = logits.argmax(-1, keepdim=True)
    target = logits.softmax(-1).mul_(soft_share)
    return target.scatter_add_(1, best, torch.full_like(best, 1 - soft_share, dtype=target.dtype))


def distillation_loss(
    exits: Tensor,
    head: Tensor,
    targets: Tensor,
    rows: Tensor,
    weights: Tensor,
    chunk: int = 16_384,
) -> tuple[Tensor, Tensor]:
    """Weighted cross-entropy of `exits @ head.T` against `targets[rows]`.

    Args:
        exits: [N, exit_dim] what the head reads.
        head: [V, exit_dim] head weights.
        targets: [T, V] target distributions.
        rows: [N] which target belongs to which exit.
        weights: [N] fp32, summing to 1 for a mean.
        chunk: logits [chunk, V] are held at a time.

    Returns:
        The loss, and each row's own cross-entropy [N] for reporting (no gradient).
    """
    loss, each = _Distillation.apply(exits, head, targets, rows, weights, chunk)
    return loss, each


class _Distillation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        exits: Tensor,
        head: Tensor,
        targets: Tensor,
        rows: Tensor,
        weights: Tensor,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        low = head.to(exits.dtype)
        d_exits = torch.empty_like(exits)
        d_head = torch.zeros_like(head)
        each = torch.empty_like(weights)
        for start in range(0, len(exits), chunk):
            part = slice(start, start + chunk)
            error, each[part] = _error(exits[part] @ low.T, targets[rows[part]], weights[part])
            d_exits[part] = error @ low
            d_head += error.T @ exits[part]
        ctx.save_for_backward(d_exits, d_head)
        ctx.mark_non_differentiable(each)
        return (each * weights).sum(), each

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        d_exits, d_head = ctx.saved_tensors
        return d_exits * d_loss.to(d_exits.dtype), d_head * d_loss, None, None, None, None


def _error(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted gradient of the logits and each row's cross-entropy."""
    log_q = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    each = -torch.linalg.vecdot(log_q, target.float())
    error = log_q.exp_().sub_(target).mul_(weight.unsqueeze(-1))
    return error.to(logits.dtype), each
