"""How many tokens a step drafts: fixed, or following what the running requests accepted lately.

Drafting one token more than is accepted on average finds out whether more would be, and wastes
little where it would not. A step drafts one length for all its rows, so their average decides.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

REMEMBERED_STEPS = 8

Accepted = deque[int]
"""Drafted tokens that a request accepted, by step; the newest `REMEMBERED_STEPS` steps drafted."""


@dataclass(frozen=True, slots=True)
class DraftLength:
    """Between `shortest` and `longest` tokens; none while more than `up_to` requests run."""

    longest: int
    shortest: int | None = None  # None: always the longest
    up_to: int | None = None  # None: whatever number runs

    def unseen(self) -> Accepted:
        """Return the record of a request of which nothing is known: as if all was accepted."""
        return deque([self.longest] * REMEMBERED_STEPS, maxlen=REMEMBERED_STEPS)

    def choose(self, accepted: Sequence[Accepted]) -> int:
        """Return the length of the next step of the requests, one or more, with these records."""
        possible = self.possible(len(accepted))
        mean = sum(map(sum, accepted)) / (REMEMBERED_STEPS * len(accepted))
        return min(max(math.ceil(mean) + 1, possible[0]), possible[-1])

    def possible(self, running: int) -> range:
        """Return the lengths that a step of `running` requests may have."""
        if self.up_to is not None and running > self.up_to:
            return range(1)
        shortest = self.longest if self.shortest is None else self.shortest
        return range(shortest, self.longest + 1)
