"""Padded batches of answer rows on the device, and the positions to learn from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.errors import BadInput


@dataclass(frozen=True, slots=True)
class Batch:
    """`positions` count through the flattened tokens, as does `last`, the end of each one's row."""

    tokens: Tensor  # [R, L] padded with 0
    positions: Tensor  # [P] where a draft starts: at least one token can be drafted
    last: Tensor  # [P]


class BatchReader:
    """Endless batches. Indices are built on the CPU, so that the device is never waited for."""

    def __init__(
        self,
        rows: AnswerRows,
        tokens_per_step: int,
        seed: int,
        device: torch.device,
        skip: int = 0,
    ) -> None:
        """Read from the batch after the first `skip`; `batches_read` counts them too."""
        self.device = device
        self.batches_read = skip
        self._tokens = rows.tokens.to(device)
        self._offsets = rows.offsets.numpy()
        self._starts = rows.prompt_tokens.numpy()
        if not (np.diff(self._offsets) >= self._starts + 2).any():
            raise BadInput("data", len(rows), "holds no answer of two tokens or more")
        self._batches = islice(rows.batches(tokens_per_step, seed), skip, None)

    def __iter__(self) -> Iterator[Batch]:
        for rows in self._batches:
            self.batches_read += 1
            batch = self._read(rows)
            if len(batch.positions):
                yield batch

    def _read(self, rows: np.ndarray) -> Batch:  # type: ignore[type-arg]
        begin, end = self._offsets[rows], self._offsets[rows + 1]
        length = int((end - begin).max())
        column = np.arange(length)
        inside = column < (end - begin)[:, None]
        where = np.where(inside, begin[:, None] + column, -1)
        # The base model chose token t+1 from the state at t; the draft begins with token t+2.
        starts = (column >= self._starts[rows][:, None] - 1) & (column + 2 < (end - begin)[:, None])
        row, at = np.nonzero(starts)
        last = row * length + (end - begin)[row] - 1
        gather = self._to_device(where)
        tokens = self._tokens[gather.clamp(min=0)].long().masked_fill(gather < 0, 0)
        return Batch(tokens, self._to_device(row * length + at), self._to_device(last))

    def _to_device(self, array: np.ndarray) -> Tensor:  # type: ignore[type-arg]
        tensor = torch.from_numpy(array)
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)
