"""What the base model answers to prompts, and the drafter's context at every position of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from profiles.statistics import repeats_itself
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch_decode import Decoding, decode
from tuner.engines.redrafter.training.forward import read_rows

SHORT = 16
_READ_TOKENS = 16_384


@dataclass(frozen=True, slots=True)
class Answers:
    """Prompts with their answers, [N, L], and the drafter's context at each position.

    `contexts[i, j]` belongs to position `start[i] + j`; `start` is the last prompt token, `last`
    the answer's last token.
    """

    tokens: Tensor
    contexts: Tensor
    start: Tensor
    last: Tensor
    categories: list[str]
    repeating: Tensor
    short: Tensor

    @property
    def drafted(self) -> Tensor:
        """How many tokens of every answer a step can commit, [N]: all but the first."""
        return (self.last - self.start - 1).clamp(min=0)


@torch.no_grad()
def write_answers(
    base: Llama,
    prompts: Mapping[str, Sequence[Sequence[int]]],
    max_new_tokens: int,
    stop_token_ids: frozenset[int],
    context_layers: tuple[int, ...],
    temperature: float = 0.0,
    seed: int = 0,
) -> Answers:
    """Let the base model answer prompts (token ids by category): greedily, or by sampling."""
    flat = [list(prompt) for group in prompts.values() for prompt in group]
    categories = [name for name, group in prompts.items() for _ in group]
    how = Decoding(max_new_tokens, stop_token_ids, temperature, seed)
    out = decode(base, flat, how).tolist()
    answers = [[token for token in row if token >= 0] for row in out]
    return prepare_answers(base, flat, answers, categories, context_layers)


@torch.no_grad()
def prepare_answers(
    base: Llama,
    prompts: Sequence[list[int]],
    answers: Sequence[list[int]],
    categories: list[str],
    context_layers: tuple[int, ...],
) -> Answers:
    """Read prompts with their answers once and keep the contexts of the answers' positions."""
    device = base.norm.weight.device
    rows = [torch.tensor([*p, *a]) for p, a in zip(prompts, answers, strict=True)]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
    start = torch.tensor([len(p) - 1 for p in prompts], device=device)
    last = torch.tensor([len(row) - 1 for row in rows], device=device)
    width = int((last - start).max())
    step = max(1, _READ_TOKENS // tokens.shape[1])
    parts = []
    for begin in range(0, len(tokens), step):
        part = slice(begin, begin + step)
        _, context = read_rows(base, tokens[part], context_layers)
        at = start[part, None] + torch.arange(width, device=device)
        at = at.clamp(max=tokens.shape[1] - 1)
        parts.append(context.gather(1, at.unsqueeze(-1).expand(-1, -1, context.shape[-1])))
    return Answers(
        tokens,
        torch.cat(parts),
        start,
        last,
        categories,
        torch.tensor([repeats_itself(a) for a in answers], device=device),
        torch.tensor([len(a) < SHORT for a in answers], device=device),
    )
