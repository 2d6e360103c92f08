"""What drafts: any method that proposes continuations which the base model then verifies.

A method only decides how far a step gets, never what is written, so all of them are lossless by the
same verification. Several requests are drafted for at once; each has a place, a number that is its
own from `join` to `leave`. Place 0 is nobody's: rows that only fill up a batch name it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor


class DraftMethod(ABC):
    """Drafts for the requests in places 1 to `places`.

    The life of a place: `join`, then `propose` and `observe` in turn, then `leave`. At every
    `propose` the last token that the method was told of is the true token.
    """

    graph_safe: ClassVar[bool]  # propose is tensor work on buffers that never move
    remembers: ClassVar[bool] = True  # False: `join` and `observe` have nothing to do
    context_layers: tuple[int, ...] = ()  # layers of the base model in the context
    context_window: int = 0  # how many of the newest contexts `join` and `observe` are to give
    max_draft_len: int | None = None  # None: no limit

    @property
    def nbytes(self) -> int:
        """Bytes of weights, indices and buffers held on the model's device."""
        return 0

    @abstractmethod
    def reserve(self, places: int, positions: int) -> None:
        """Make room for `places` requests of `positions` tokens, drafts included.

        Everything that was in a place is forgotten.

        Raises:
            BadInput: the method cannot reach so many positions.
        """

    @abstractmethod
    def join(self, place: int, tokens: list[int], context: Tensor) -> None:
        """Begin a request whose prompt has been read.

        Args:
            place: its place, free until now.
            tokens: [P + 1] the prompt and the first token that the base model chose.
            context: [K, context_size] of the prompt's last K positions, K at least
                min(P, context_window); the last one is what the first token was chosen from.
        """

    @abstractmethod
    def propose(
        self, places: Tensor, true_token: Tensor, context: Tensor, beam_width: int, draft_len: int
    ) -> Tensor:
        """Draft for the requests in `places` [B].

        Args:
            places: where they are; on the CPU unless the method is graph-safe.
            true_token: [B] the newest token of each, chosen by the base model.
            context: [B, context_size] what it was chosen from.
            beam_width: continuations, W >= 1.
            draft_len: tokens of each, D >= 1.

        Returns:
            [B, W, 1 + D] token ids on the device of `true_token`; column 0 is the true token.
            Where there are fewer than W continuations some stand there twice.
        """

    @abstractmethod
    def observe(self, places: list[int], tokens: list[list[int]], context: Tensor) -> None:
        """Take in what a step committed.

        Args:
            places: the requests of the step that go on.
            tokens: what each of them committed, at least one token.
            context: [B, L, context_size]; row b's first len(tokens[b]) entries are what those
                tokens were chosen from. May be empty if `context_window` is 0.
        """

    @abstractmethod
    def leave(self, place: int) -> None:
        """End a request, begun or not; its place is free."""


def repeat_to_width(beams: Tensor, beam_width: int) -> Tensor:
    """Fill `beams` [B, W', L] up to [B, W, L]: copies cost nothing, the tree merges them."""
    missing = beam_width - beams.shape[1]
    if missing <= 0:
        return beams
    return torch.cat((beams, beams[:, -1:].expand(-1, missing, -1)), dim=1)
