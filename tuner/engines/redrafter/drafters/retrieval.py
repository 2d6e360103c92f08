"""Drafts by looking up: what followed the last time the text ended like this.

The end of each text is looked for in its prompt, in what was written so far and in an optional
store. The longest agreement goes first, the most recent of equals, the text itself before the
store. There are no weights, nothing is trained, and any draft length will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from tuner.engines.redrafter.drafters.base import DraftMethod
from tuner.engines.redrafter.drafters.suffix_index import (
    Match,
    SuffixIndex,
    Tokens,
    matches_within,
)

SHORTEST_IN_STORE = 2  # one common token says too little of what follows in another text


class RetrievalDraft(DraftMethod):
    """Host work: token ids, no tensors. A place's text grows in a buffer of its own."""

    graph_safe: ClassVar[bool] = False

    def __init__(self, store: SuffixIndex | None = None) -> None:
        self.store = store
        self._positions = 0
        self._texts: dict[int, tuple[Tokens, int]] = {}  # buffer and how much of it is in use

    def reserve(self, places: int, positions: int) -> None:
        """Forget all texts."""
        self._positions = positions
        self._texts = {}

    def join(self, place: int, tokens: list[int], context: Tensor) -> None:
        """Begin with the prompt and the first token."""
        buffer = np.empty(max(self._positions, len(tokens)), dtype=np.int32)
        buffer[: len(tokens)] = tokens
        self._texts[place] = (buffer, len(tokens))

    def propose(
        self, places: Tensor, true_token: Tensor, context: Tensor, beam_width: int, draft_len: int
    ) -> Tensor:
        """Look every text's end up; where nothing is found the true token is repeated."""
        found = [self._look_up(place, beam_width, draft_len) for place in places.tolist()]
        drafts = torch.tensor(found, device=true_token.device)
        root = true_token.view(-1, 1, 1).expand(-1, beam_width, 1)
        repeated = root.expand(-1, -1, draft_len)
        return torch.cat((root, torch.where(drafts < 0, repeated, drafts)), dim=-1)

    def observe(self, places: list[int], tokens: list[list[int]], context: Tensor) -> None:
        """Append what was committed."""
        for place, new in zip(places, tokens, strict=True):
            buffer, used = self._texts[place]
            buffer[used : used + len(new)] = new
            self._texts[place] = (buffer, used + len(new))

    def leave(self, place: int) -> None:
        """Forget the text."""
        self._texts.pop(place, None)

    def _look_up(self, place: int, beam_width: int, draft_len: int) -> list[list[int]]:
        """Return W different continuations of D tokens, or copies where there are fewer."""
        drafts: dict[tuple[int, ...], None] = {}
        for match in self._matches(place):
            if len(match.following):
                # A text that repeats itself runs into its own end: go round.
                drafts[tuple(np.resize(match.following, draft_len).tolist())] = None
            if len(drafts) == beam_width:
                break
        found = [list(draft) for draft in drafts] or [[-1] * draft_len]
        return found + found[-1:] * (beam_width - len(found))

    def _matches(self, place: int) -> Iterator[Match]:
        if place not in self._texts:
            return iter(())
        buffer, used = self._texts[place]
        own = matches_within(buffer[:used])
        if self.store is None:
            return own
        stored = self.store.matches(buffer[:used], SHORTEST_IN_STORE)
        return merge(own, stored, key=lambda match: -match.length)
