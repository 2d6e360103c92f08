"""The distillation loss, without ever holding the logits of a whole batch.

At every drafted position the drafter's distribution q is compared with the base model's p, both
over the draft vocabulary:

    soft  * T^2 KL(p_T || q_T)     its beliefs at temperature T; T^2 keeps the gradient's scale
    choice * CE(argmax p, q)       what it would choose at temperature 0
    text  * CE(token, q)           what stands in the text

The gradient of the logits has a closed form, so it is made chunk by chunk in the forward pass and
the logits are forgotten at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tuner.errors import BadInput

LOGITS_AT_ONCE = 2**27


@dataclass(frozen=True, slots=True)
class Objective:
    """What the drafter is to agree with. The defaults are the recipe of the shipped drafter."""

    soft_share: float = 0.1  # beliefs against choice, of what the text leaves
    temperature: float = 1.0  # T of the beliefs
    text_share: float = 0.0  # 1: plain cross-entropy on the text
    horizon_decay: float = 0.85  # weight of each drafted position relative to the one before

    def __post_init__(self) -> None:
        for name in ("soft_share", "text_share", "horizon_decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadInput(name, getattr(self, name), "must be in [0, 1]")
        if not 0 < self.temperature < float("inf"):
            raise BadInput("temperature", self.temperature, "must be positive")

    @property
    def shares(self) -> tuple[float, float, float]:
        """Shares of beliefs, choice and text, summing to 1."""
        rest = 1 - self.text_share
        return rest * self.soft_share, rest * (1 - self.soft_share), self.text_share


TEXT_ONLY = Objective(text_share=1.0)


@dataclass(frozen=True, slots=True)
class Targets:
    """What is right at T positions, as indices into the draft vocabulary of V tokens."""

    text: Tensor  # [T] token of the text; any index where the weight is 0
    choice: Tensor  # [T] what the base model would choose
    beliefs: Tensor | None = None  # [T, V] its distribution at the objective's temperature
    entropy: Tensor | None = None  # [T] of the beliefs, nats


def distillation_targets(
    hidden: Tensor, head: Tensor, text: Tensor, objective: Objective
) -> Targets:
    """Ask the base model, some positions at a time.

    Args:
        hidden: [T, H] what its LM head reads.
        head: [V, H] the LM head's rows of the draft vocabulary, fp32.
        text: [T] the text's next token as a draft vocabulary index.
        objective: says whether beliefs are needed and at which temperature.
    """
    choice = torch.empty_like(text)
    soft = objective.shares[0] > 0
    beliefs = hidden.new_empty(len(text), len(head)) if soft else None
    entropy = torch.empty(len(text), device=text.device) if soft else None
    for part in _chunks(len(text), len(head)):
        logits = hidden[part].float() @ head.T
        choice[part] = logits.argmax(-1)
        if beliefs is not None and entropy is not None:
            log_p = (logits / objective.temperature).log_softmax(-1)
            entropy[part] = -torch.linalg.vecdot(log_p.exp(), log_p)
            beliefs[part] = log_p.exp_().to(beliefs.dtype)
    return Targets(text, choice, beliefs, entropy)


def distillation_loss(
    exits: Tensor,
    head: Tensor,
    targets: Targets,
    rows: Tensor,
    weights: Tensor,
    objective: Objective,
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted loss of `exits @ head.T` against `targets` at `rows`.

    Args:
        exits: [N, exit_dim] what the head reads.
        head: [V, exit_dim] head weights.
        targets: T positions.
        rows: [N] which target belongs to which exit.
        weights: [N] fp32, summing to 1 for a mean.
        objective: shares and temperature.

    Returns:
        The loss, and without gradient each row's own loss [N] and whether its likeliest token is
        the base model's choice [N].
    """
    loss, each, hit = _Distillation.apply(exits, head, weights, rows, targets, objective)
    return loss, each, hit


class _Distillation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        exits: Tensor,
        head: Tensor,
        weights: Tensor,
        rows: Tensor,
        targets: Targets,
        objective: Objective,
    ) -> tuple[Tensor, Tensor, Tensor]:
        low = head.to(exits.dtype)
        d_exits, d_head = torch.empty_like(exits), torch.zeros_like(head)
        each = torch.empty_like(weights)
        hit = torch.empty_like(weights, dtype=torch.bool)
        for part in _chunks(len(exits), len(head)):
            logits = exits[part] @ low.T
            hit[part] = logits.argmax(-1) == targets.choice[rows[part]]
            each[part], error = _compare(logits, targets, rows[part], objective)
            error = error.mul_(weights[part, None]).to(logits.dtype)
            d_exits[part] = error @ low
            d_head += error.T @ exits[part]
        ctx.save_for_backward(d_exits, d_head)
        ctx.mark_non_differentiable(each, hit)
        return (each * weights).sum(), each, hit

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        d_exits, d_head = ctx.saved_tensors
        return d_exits * d_loss.to(d_exits.dtype), d_head * d_loss, None, None, None, None


def _compare(
    logits: Tensor, targets: Targets, rows: Tensor, objective: Objective
) -> tuple[Tensor, Tensor]:
    """Return each row's loss and its gradient by the logits, fp32 (fp64 for fp64 logits)."""
    soft, choice, text = objective.shares
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    log_q = logits.log_softmax(-1, dtype=wide)
    each = torch.zeros_like(log_q[:, 0])
    hard = [(targets.choice[rows], choice), (targets.text[rows], text)]
    for index, share in hard:
        if share:
            each.sub_(log_q.gather(1, index[:, None])[:, 0], alpha=share)
    if soft and objective.temperature != 1:
        error = log_q.exp().mul_(choice + text)
        log_q = (logits.to(wide) / objective.temperature).log_softmax(-1)
        distance, gradient = _divergence(log_q, targets, rows)
        each.add_(distance, alpha=soft * objective.temperature**2)
        error.add_(gradient, alpha=soft * objective.temperature)
    elif soft:
        # At T = 1 all three share one q: q - soft * p - choice * onehot - text * onehot.
        distance, gradient = _divergence(log_q, targets, rows)
        each.add_(distance, alpha=soft)
        error = gradient.mul_(soft).add_(log_q, alpha=choice + text)
    else:
        error = log_q.exp_()
    for index, share in hard:
        if share:
            error.scatter_add_(1, index[:, None], torch.full_like(error[:, :1], -share))
    return each, error


def _divergence(log_q: Tensor, targets: Targets, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return KL(p || q) by row and q - p. Leaves q in `log_q`."""
    assert targets.beliefs is not None and targets.entropy is not None
    p = targets.beliefs[rows].to(log_q.dtype)
    distance = -torch.linalg.vecdot(p, log_q) - targets.entropy[rows]
    q = log_q.exp_()
    return distance, q - p


def _chunks(count: int, vocab: int) -> list[slice]:
    """Parts of `count` rows whose logits over `vocab` tokens may be held at once."""
    size = max(1, LOGITS_AT_ONCE // vocab)
    return [slice(start, start + size) for start in range(0, count, size)]
