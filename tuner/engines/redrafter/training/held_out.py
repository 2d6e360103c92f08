"""Prompts that are never trained on, and the acceptance measured on them."""

from __future__ import annotations

import copy

import torch

from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.linear import apply_compute, compute_path
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.evaluate import measure, write_answers
from tuner.engines.redrafter.training.rows import AnswerRows

WATCHED_WIDTH, WATCHED_LENGTH = 4, 4


def hold_out(rows: AnswerRows, count: int, seed: int) -> tuple[AnswerRows, list[list[int]]]:
    """Take `count` distinct prompts out of `rows`, at most a fifth of them, with all their answers.

    Returns:
        What is left to train on, and the prompts.
    """
    if count == 0:
        return rows, []
    prompts = [tuple(rows.prompt(number)) for number in range(len(rows))]
    distinct = sorted(set(prompts))
    count = min(count, len(distinct) // 5)
    order = torch.randperm(len(distinct), generator=torch.Generator().manual_seed(seed))
    chosen = {distinct[number] for number in order[:count].tolist()}
    kept = [number for number, prompt in enumerate(prompts) if prompt not in chosen]
    return rows.select(kept), [list(prompt) for prompt in sorted(chosen)]


class HeldOut:
    """The base model's greedy answers to held-out prompts, written once."""

    def __init__(
        self,
        base: Llama,
        prompts: list[list[int]],
        tokens: int,
        stop_token_ids: frozenset[int],
        context_layers: tuple[int, ...],
    ) -> None:
        self.base = base
        answers = {"held-out": prompts} if prompts and tokens else {}
        self._answers = (
            write_answers(base, answers, tokens, stop_token_ids, context_layers)
            if answers
            else None
        )

    def acceptance_length(self, drafter: Drafter) -> float | None:
        """Return it at (4, 4), or shorter drafts where trained for fewer; None without prompts.

        Answers that repeat themselves or are very short do not count, as long as others are left.
        """
        if self._answers is None:
            return None
        device = self.base.norm.weight.device
        copied = copy.deepcopy(drafter)
        apply_compute(copied, compute_path("bf16" if device.type == "cuda" else "fp32", device))
        length = min(WATCHED_LENGTH, drafter.config.trained_draft_len)
        report = measure(self.base, copied, self._answers, [(WATCHED_WIDTH, length)])
        lengths = [cell.acceptance_length for cell in (report.kept[0], report.everything[0])]
        return next((length for length in lengths if length is not None), None)
