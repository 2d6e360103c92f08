"""Answers of the base model as flat token rows, on disk and in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tuner.errors import BadInput

_FIELDS = {"tokens", "offsets", "prompt_tokens"}


@dataclass(frozen=True, slots=True)
class AnswerRows:
    """Row i is `tokens[offsets[i]:offsets[i + 1]]`, its first `prompt_tokens[i]` the prompt."""

    tokens: Tensor  # int32
    offsets: Tensor  # int64, one more than rows
    prompt_tokens: Tensor  # int64

    @classmethod
    def join(cls, pairs: Sequence[tuple[list[int], NDArray[np.int32]]]) -> AnswerRows:
        """Lay prompts and their answers out flat."""
        parts = [np.asarray(part, dtype=np.int32) for pair in pairs for part in pair]
        lengths = torch.tensor([0, *(len(prompt) + len(answer) for prompt, answer in pairs)])
        starts = torch.tensor([len(prompt) for prompt, _ in pairs])
        return cls(torch.from_numpy(np.concatenate(parts)), lengths.cumsum(0), starts)

    @classmethod
    def load(cls, path: Path) -> AnswerRows:
        """Read a file that `save` wrote. Raises BadInput where it is missing or something else."""
        try:
            state = load_file(str(path))
        except (SafetensorError, OSError) as error:
            raise BadInput("data", str(path), f"is not a readable answer file ({error})") from error
        if state.keys() != _FIELDS:
            raise BadInput("data", str(path), f"must hold {sorted(_FIELDS)}, not {sorted(state)}")
        rows = cls(**state)
        if not len(rows):
            raise BadInput("data", str(path), "holds no answers; generate some")
        return rows

    def save(self, path: Path) -> None:
        """Write whole: a temporary name, then a rename."""
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.partial")
        save_file({name: getattr(self, name) for name in sorted(_FIELDS)}, str(scratch))
        scratch.replace(path)

    def check_tokens(self, vocab_size: int, source: Path) -> None:
        """Raise BadInput where a token is none of the model's."""
        if (largest := int(self.tokens.max())) >= vocab_size:
            raise BadInput(
                "data",
                str(source),
                f"holds token {largest} of another tokenizer; the model has {vocab_size} tokens",
            )

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def prompt(self, number: int) -> list[int]:
        """Return the prompt of a row."""
        start = int(self.offsets[number])
        return self.tokens[start : start + int(self.prompt_tokens[number])].tolist()

    def select(self, numbers: Sequence[int]) -> AnswerRows:
        """Return only these rows."""
        chosen = torch.tensor(numbers, dtype=torch.long)
        lengths = self.offsets.diff()[chosen]
        offsets = torch.cat((lengths.new_zeros(1), lengths.cumsum(0)))
        shift = torch.repeat_interleave(self.offsets[chosen] - offsets[:-1], lengths)
        tokens = self.tokens[torch.arange(len(shift)) + shift]
        return AnswerRows(tokens, offsets, self.prompt_tokens[chosen])

    @property
    def longest(self) -> int:
        """Tokens of the longest row, prompt included."""
        return int(self.offsets.diff().max())

    @property
    def answer_tokens(self) -> int:
        """Tokens that the base model wrote, stop tokens included."""
        return len(self.tokens) - int(self.prompt_tokens.sum())

    def count_answer_tokens(self, vocab_size: int) -> Tensor:
        """How often each token stands in an answer, [vocab_size]."""
        rows = torch.repeat_interleave(torch.arange(len(self)), self.offsets.diff())
        inside = torch.arange(len(self.tokens)) - self.offsets[rows] >= self.prompt_tokens[rows]
        return torch.bincount(self.tokens[inside].long(), minlength=vocab_size)

    def batches(self, tokens_per_batch: int, seed: int) -> Iterator[NDArray[np.int64]]:
        """Yield row numbers for ever: random rows of similar length, padded size within bounds."""
        lengths = self.offsets.diff().numpy()
        chance = np.random.default_rng(seed)
        while True:
            order = chance.permutation(len(self))
            # Sorting by length within large random groups wastes little on padding.
            groups = np.array_split(order, max(1, len(order) // 8192))
            batches = [batch for g in groups for batch in _cut(g, lengths, tokens_per_batch)]
            for number in chance.permutation(len(batches)):
                yield batches[number]


def _cut(
    group: NDArray[np.int64], lengths: NDArray[np.int64], tokens_per_batch: int
) -> list[NDArray[np.int64]]:
    ordered = group[np.argsort(lengths[group], kind="stable")]
    batches, start = [], 0
    for end in range(1, len(ordered) + 1):
        full = end == len(ordered) or (end + 1 - start) * lengths[ordered[end]] > tokens_per_batch
        if full:
            batches.append(ordered[start:end])
            start = end
    return batches
