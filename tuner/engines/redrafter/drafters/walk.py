"""Exact acceptance of any draft method on given texts, without an engine.

The text that the base model writes does not depend on who drafts. So its answers are written once
and a method is led through them as in serving: draft, accept what agrees, go on after the base
model's own next token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.engines.redrafter.drafters.base import DraftMethod
from tuner.engines.redrafter.training.answers import Answers

SIDE_BY_SIDE = 128  # answers; what methods remember of them is held at once


@dataclass(frozen=True, slots=True)
class Steps:
    """S steps through answers, on the CPU. The first token of an answer comes from its prompt."""

    row: Tensor  # [S] the answer
    offset: Tensor  # [S] the step begins when offset + 1 of its tokens are written
    committed: Tensor  # [S] tokens
    beams: Tensor  # [S, W, 1 + D] int32, what was drafted behind the true token


@torch.inference_mode()
def walk(method: DraftMethod, answers: Answers, beam_width: int, draft_len: int) -> Steps:
    """Lead `method` through all answers.

    Raises:
        BadInput: an answer is longer than the method can reach.
    """
    drafted = answers.drafted.cpu()
    longest = int(answers.last.max()) + 2 + beam_width * draft_len
    nothing = torch.zeros(0, dtype=torch.long)
    no_beams = torch.zeros(0, beam_width, 1 + draft_len, dtype=torch.int32)
    taken = [Steps(nothing, nothing, nothing, no_beams)]
    for rows in drafted.nonzero().flatten().split(SIDE_BY_SIDE):
        method.reserve(len(rows), longest)
        walkers = _Walkers(method, answers, rows)
        while len(walkers.row):
            taken.append(walkers.step(beam_width, draft_len))
    return Steps(
        torch.cat([steps.row for steps in taken]),
        torch.cat([steps.offset for steps in taken]),
        torch.cat([steps.committed for steps in taken]),
        torch.cat([steps.beams for steps in taken]),
    )


class _Walkers:
    """Where the answers that are not at their end stand: [B] places, rows and offsets."""

    def __init__(self, method: DraftMethod, answers: Answers, rows: Tensor) -> None:
        self.method, self.answers = method, answers
        self.tokens, self.start = answers.tokens.cpu(), answers.start.cpu()
        self.last, self.drafted = answers.last.cpu(), answers.drafted.cpu()
        self.row, self.offset = rows, torch.zeros_like(rows)
        self.place = torch.arange(1, len(rows) + 1)
        for place, row in zip(self.place.tolist(), rows.tolist(), strict=True):
            start = int(self.start[row])
            prompt = answers.contexts[row, max(0, answers.window - 1 - start) : answers.window]
            method.join(place, self.tokens[row, : start + 2].tolist(), prompt)

    def step(self, beam_width: int, draft_len: int) -> Steps:
        """Draft, accept what agrees with the answers and one token more."""
        beams = self._propose(beam_width, draft_len)
        truth = self._written(1 + draft_len)
        agrees = beams[..., 1:] == truth[:, None, :draft_len]
        accepted = agrees.long().cumprod(-1).sum(-1).amax(-1)
        committed = torch.minimum(accepted + 1, self.drafted[self.row] - self.offset)
        steps = Steps(self.row, self.offset, committed, beams.int())
        self._go_on(committed, truth)
        return steps

    def _written(self, count: int) -> Tensor:
        """The next `count` tokens of every answer, [B, count]; -1 past its end."""
        at = (self.start[self.row] + self.offset + 2)[:, None] + torch.arange(count)
        tokens = self.tokens[self.row[:, None], at.clamp(max=self.tokens.shape[1] - 1)]
        return tokens.masked_fill(at > self.last[self.row, None], -1)

    def _propose(self, beam_width: int, draft_len: int) -> Tensor:
        """Drafts [B, W, 1 + D] on the CPU."""
        contexts = self.answers.contexts
        true_token = self.tokens[self.row, self.start[self.row] + self.offset + 1]
        context = contexts[self.row.to(contexts.device), self._column(self.offset)]
        place = self.place.to(contexts.device) if self.method.graph_safe else self.place
        beams = self.method.propose(
            place, true_token.to(contexts.device), context, beam_width, draft_len
        ).cpu()
        assert beams.shape == (len(true_token), beam_width, 1 + draft_len)
        assert torch.equal(beams[..., 0], true_token.unsqueeze(1).expand(-1, beam_width))
        return beams

    def _column(self, offset: Tensor) -> Tensor:
        """Where the contexts of tokens chosen at `offset` lie, on their device."""
        contexts = self.answers.contexts
        column = (self.answers.window - 1 + offset).clamp(max=contexts.shape[1] - 1)
        return column.to(contexts.device)

    def _go_on(self, committed: Tensor, truth: Tensor) -> None:
        """Tell the method what was committed; who is at the end leaves."""
        before, self.offset = self.offset, self.offset + committed
        goes = self.offset < self.drafted[self.row]
        for place in self.place[~goes].tolist():
            self.method.leave(place)
        self.place, self.row, self.offset = self.place[goes], self.row[goes], self.offset[goes]
        if not self.method.remembers or not len(self.row):
            return
        counts = committed[goes].tolist()
        chosen_at = before[goes, None] + 1 + torch.arange(max(counts))
        row = self.row[:, None].to(self.answers.contexts.device)
        context = self.answers.contexts[row, self._column(chosen_at)]
        new = [tokens[:n] for tokens, n in zip(truth[goes].tolist(), counts, strict=True)]
        self.method.observe(self.place.tolist(), new, context)
