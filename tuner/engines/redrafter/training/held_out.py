"""Prompts that are never trained on, and the acceptance measured on them."""

from __future__ import annotations

import torch

from tuner.engines.redrafter.drafters.base import DraftMethod
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.answers import write_answers
from tuner.engines.redrafter.training.batch_decode import Decoding
from tuner.engines.redrafter.training.evaluate import measure
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
        self, base: Llama, prompts: list[list[int]], how: Decoding, method: DraftMethod
    ) -> None:
        self.base = base
        asked = prompts and how.max_new_tokens
        self._answers = write_answers(base, {"held-out": prompts}, how, method) if asked else None

    def acceptance_length(self, method: DraftMethod) -> float | None:
        """Return it at (4, 4), or shorter drafts where trained for fewer; None without prompts.

        Answers that repeat themselves or are very short do not count, as long as others are left.
        """
        if self._answers is None:
            return None
        length = min(WATCHED_LENGTH, method.max_draft_len or WATCHED_LENGTH)
        report = measure(self.base, method, self._answers, [(WATCHED_WIDTH, length)])
        lengths = [cell.acceptance_length for cell in (report.kept[0], report.everything[0])]
        return next((length for length in lengths if length is not None), None)
