"""What the base model answers to prompts, and the drafter's context at every position of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from profiles.statistics import repeats_itself
from tuner.engines.redrafter.drafters.base import DraftMethod
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch_decode import Decoding, decode
from tuner.engines.redrafter.training.forward import read_rows

SHORT = 16
_READ_TOKENS = 16_384


@dataclass(frozen=True, slots=True)
class Answers:
    """N prompts with their answers in rows of L tokens, and the contexts that a drafter wants.

    `start` is the position of the last prompt token, `last` that of the answer's last token.
    `contexts[i, j]` belongs to position `start[i] + 1 - window + j`, so that those of the prompt's
    last `window` tokens come first; of a shorter prompt the first ones mean nothing.
    """

    tokens: Tensor  # [N, L]
    contexts: Tensor  # [N, window + answer, context_size]
    window: int
    start: Tensor  # [N]
    last: Tensor  # [N]
    categories: list[str]
    repeating: Tensor  # [N] bool
    short: Tensor  # [N] bool

    @property
    def drafted(self) -> Tensor:
        """How many tokens of every answer a step can commit, [N]: all but the first."""
        return (self.last - self.start - 1).clamp(min=0)


@torch.no_grad()
def write_answers(
    base: Llama,
    prompts: Mapping[str, Sequence[Sequence[int]]],
    how: Decoding,
    method: DraftMethod,
) -> Answers:
    """Let the base model answer prompts (token ids by category), for `method` to draft."""
    flat = [list(prompt) for group in prompts.values() for prompt in group]
    categories = [name for name, group in prompts.items() for _ in group]
    out = decode(base, flat, how).tolist()
    answers = [[token for token in row if token >= 0] for row in out]
    return prepare_answers(base, flat, answers, categories, method)


@torch.no_grad()
def prepare_answers(
    base: Llama,
    prompts: Sequence[list[int]],
    answers: Sequence[list[int]],
    categories: list[str],
    method: DraftMethod,
) -> Answers:
    """Read prompts with their answers once and keep the contexts that `method` wants."""
    device = base.norm.weight.device
    rows = [torch.tensor([*p, *a]) for p, a in zip(prompts, answers, strict=True)]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
    start = torch.tensor([len(p) - 1 for p in prompts], device=device)
    last = torch.tensor([len(row) - 1 for row in rows], device=device)
    window = max(1, method.context_window)
    columns = torch.arange(1 - window, int((last - start).max()) + 1, device=device)
    step = max(1, _READ_TOKENS // tokens.shape[1])
    parts = []
    for part in torch.arange(len(tokens), device=device).split(step):
        _, context = read_rows(base, tokens[part], method.context_layers)
        at = (start[part, None] + columns).clamp(0, tokens.shape[1] - 1)
        parts.append(context.gather(1, at.unsqueeze(-1).expand(-1, -1, context.shape[-1])))
    return Answers(
        tokens,
        torch.cat(parts),
        window,
        start,
        last,
        categories,
        torch.tensor([repeats_itself(a) for a in answers], device=device),
        torch.tensor([len(a) < SHORT for a in answers], device=device),
    )
