"""How far drafts reach into a text from each of its positions, for every draft length at once.

The text does not depend on who drafts, so the drafter is searched at every position and the steps
that serving would take are read off afterwards. A search of D tokens passes through the searches of
1 to D - 1 tokens, so length is free; the beams of a width are not among those of a wider search, so
every width is searched for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.engines.redrafter.beam import grow
from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.answers import Answers

_LOGITS_AT_ONCE = 2**25


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps that one draft length takes through every answer: [N, A], A the longest answer.

    Entry (i, j) is the step that begins when j + 1 tokens of answer i are written.
    """

    begins: Tensor  # bool
    committed: Tensor  # 0 where no step begins


@torch.no_grad()
def reach(
    base: Llama, drafter: Drafter, answers: Answers, beam_width: int, draft_len: int
) -> Tensor:
    """Return what a step from every position would commit, without a limit at the answer's end.

    Returns:
        [draft_len, N, A] on the CPU: entry (k, i, j) with k + 1 tokens drafted, when j + 1 tokens
        of answer i are written. 0 where nothing is left to draft.
    """
    drafted = answers.drafted
    offsets = torch.arange(answers.contexts.shape[1], device=drafted.device)
    row, offset = (offsets < drafted[:, None]).nonzero(as_tuple=True)
    size = max(1, _LOGITS_AT_ONCE // (beam_width * drafter.config.draft_vocab_size))
    found = [
        _reach_from(base, drafter, answers, rows, columns, beam_width, draft_len)
        for rows, columns in zip(row.split(size), offset.split(size), strict=True)
    ]
    full = torch.zeros(draft_len, *answers.contexts.shape[:2], dtype=torch.int16)
    if found:
        full[:, row.cpu(), offset.cpu()] = torch.cat(found, dim=1).cpu()
    return full


def _reach_from(
    base: Llama,
    drafter: Drafter,
    answers: Answers,
    row: Tensor,
    offset: Tensor,
    beam_width: int,
    draft_len: int,
) -> Tensor:
    """Return [draft_len, P] for the positions (row [P], offset [P])."""
    columns = (answers.start[row] + offset)[:, None] + torch.arange(
        1, draft_len + 2, device=row.device
    )
    truth = answers.tokens[row[:, None], columns.clamp(max=answers.tokens.shape[1] - 1)]
    truth = truth.masked_fill(columns > answers.last[row, None], -1)
    context = answers.contexts[row, offset]
    agreed = torch.ones(len(row), 1, dtype=torch.int16, device=row.device)  # the true token
    best = []
    grown = grow(drafter, base.embed_tokens, truth[:, 0], context, beam_width, draft_len)
    for depth, beams in enumerate(grown, start=1):
        agreed = agreed.gather(1, beams.parent)
        agreed += (agreed == depth) & (beams.token == truth[:, depth : depth + 1])
        best.append(agreed.amax(1))
    return torch.stack(best)


def walk(reached: Tensor, drafted: Tensor) -> Steps:
    """Go through all answers side by side.

    Args:
        reached: [N, A] of one draft length, as `reach` gives it.
        drafted: [N] tokens of every answer that steps commit.
    """
    reached, drafted = reached.long(), drafted.cpu()
    begins = torch.zeros(reached.shape, dtype=torch.bool)
    committed = torch.zeros_like(reached)
    offset = torch.zeros_like(drafted)
    while len(row := (offset < drafted).nonzero().flatten()):
        at = offset[row]
        step = torch.minimum(reached[row, at], drafted[row] - at)
        begins[row, at] = True
        committed[row, at] = step
        offset[row] += step
    return Steps(begins, committed)
