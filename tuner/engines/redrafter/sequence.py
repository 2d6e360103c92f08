"""One request while it is being served: what it owns and what it has written so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from profiles.records import FinishReason, RequestRecord
from tuner.engines.base import Request
from tuner.engines.redrafter.draft_length import Accepted


@dataclass(slots=True)
class Sequence:
    """Host-side state. The newest output token's key and value are not in the cache yet."""

    request: Request
    blocks: list[int]
    slots: Tensor  # slot of every position it may reach
    arrival_s: float
    place: int  # where the draft method keeps it
    accepted: Accepted  # what tells how far to draft
    read: int = 0  # prompt tokens whose keys and values are in the cache
    context: Tensor | None = None  # [K, context_size] of the newest K positions of the prompt
    output: list[int] = field(default_factory=list)
    emission_s: list[float] = field(default_factory=list)
    emission_tokens: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    @property
    def kv_len(self) -> int:
        """Positions whose keys and values are in the cache."""
        return len(self.request.prompt_token_ids) + max(0, len(self.output) - 1)

    @property
    def unread(self) -> int:
        """Prompt tokens that are still to be read."""
        return len(self.request.prompt_token_ids) - self.read

    def commit(self, tokens: list[int], now_s: float) -> int:
        """Append what a step gave, cut where plain decoding would have ended.

        Returns:
            How many tokens reached the user. `finish_reason` is set when the request ended.
        """
        room = self.request.max_new_tokens - len(self.output)
        kept = tokens[:room]
        for index, token in enumerate(kept):
            if token in self.request.stop_token_ids:
                kept = kept[: index + 1]
                self.finish_reason = "stop"
                break
        else:
            if len(kept) == room:
                self.finish_reason = "length"
        self.output += kept
        self.emission_s.append(now_s)
        self.emission_tokens.append(len(kept))
        return len(kept)

    def record(self) -> RequestRecord:
        """Return the finished request's record."""
        assert self.finish_reason is not None, "the request is still running"
        return RequestRecord(
            id=self.request.id,
            category=self.request.category,
            prompt_tokens=len(self.request.prompt_token_ids),
            output_token_ids=self.output,
            finish_reason=self.finish_reason,
            arrival_s=self.arrival_s,
            emission_s=self.emission_s,
            emission_tokens=self.emission_tokens,
        )
