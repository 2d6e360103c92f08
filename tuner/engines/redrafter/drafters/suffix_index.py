"""Where a text stood before: in itself, or in a store that was indexed once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LONGEST = 16  # tokens that are compared; longer agreement is told no further apart
SEPARATOR = -1  # between the documents of a store; no token
_LOOKED_AT = 256  # places of one match length in a store; a common word stands in thousands

Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Match:
    """`length` tokens that end where `following` begins, equal to the end of the text."""

    length: int
    following: Tokens


def matches_within(text: Tokens) -> Iterator[Match]:
    """Yield where the end of `text` stood before, the longest first, then the most recent."""
    ends = np.flatnonzero(text[:-1] == text[-1])
    length = np.ones_like(ends)
    alive = np.arange(len(ends))
    for back in range(1, LONGEST):
        alive = alive[ends[alive] >= back]
        alive = alive[text[ends[alive] - back] == text[len(text) - 1 - back]]
        if not len(alive):
            break
        length[alive] += 1
    for which in np.lexsort((-ends, -length)):
        yield Match(int(length[which]), text[ends[which] + 1 :])


class SuffixIndex:
    """A store of documents, its positions sorted by the tokens that lead up to them."""

    def __init__(self, documents: list[Tokens]) -> None:
        separator = np.array([SEPARATOR], dtype=np.int32)
        parts = [part for document in documents for part in (document, separator)]
        self._tokens = np.concatenate(parts)
        self._order = _sort_by_context(self._tokens)

    def matches(self, text: Tokens, shortest: int) -> Iterator[Match]:
        """Yield where the end of `text` stands, longest first, the later in the store first."""
        spans = self._spans(text)
        inner = (0, 0)
        for length in range(len(spans), shortest - 1, -1):
            low, high = spans[length - 1]
            outside = (self._order[low : inner[0]], self._order[max(low, inner[1]) : high])
            found = np.concatenate(outside if inner != (0, 0) else (self._order[low:high],))
            for end in -np.sort(-found[:_LOOKED_AT]):
                yield Match(length, self._following(int(end) + 1))
            inner = (low, high)

    def _spans(self, text: Tokens) -> list[tuple[int, int]]:
        """Return for each match length, from 1, the stretch of the order that has it."""
        low, high, spans = 0, len(self._order), []
        for back in range(min(LONGEST, len(text))):
            wanted = text[len(text) - 1 - back]

            def token_before(end: int, back: int = back) -> int:
                return int(self._tokens[end - back]) if end >= back else SEPARATOR

            left = bisect_left(self._order, wanted, low, high, key=token_before)
            high = bisect_right(self._order, wanted, left, high, key=token_before)
            low = left
            if low == high:
                break
            spans.append((low, high))
        return spans

    def _following(self, start: int) -> Tokens:
        """What follows in the same document, as far as any draft could reach."""
        piece = self._tokens[start : start + 64]
        ends = np.flatnonzero(piece == SEPARATOR)
        return piece[: ends[0]] if len(ends) else piece


def _sort_by_context(tokens: Tokens) -> NDArray[np.int64]:
    """Sort positions by the `LONGEST` tokens ending there, the newest token counting most."""
    rank = tokens.astype(np.int64) - tokens.min()
    known = 1
    while known < LONGEST:
        before = np.zeros_like(rank)
        before[known:] = rank[:-known] + 1
        rank = np.unique(rank * (rank.max() + 2) + before, return_inverse=True)[1]
        known *= 2
    return np.argsort(rank, kind="stable")
