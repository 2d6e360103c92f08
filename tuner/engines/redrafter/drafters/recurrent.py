"""The recurrent drafter behind the interface: it needs nothing but the step's context."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from tuner.engines.redrafter.beam import beam_search
from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.drafters.base import DraftMethod, repeat_to_width
from tuner.engines.redrafter.linear import module_bytes


class RecurrentDraft(DraftMethod):
    """Beam search over the recurrent drafter."""

    graph_safe: ClassVar[bool] = True
    remembers: ClassVar[bool] = False

    def __init__(self, drafter: Drafter, embed: nn.Embedding) -> None:
        self.drafter, self.embed = drafter, embed
        self.context_layers = drafter.config.context_layers
        self.max_draft_len = drafter.config.trained_draft_len

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        return module_bytes(self.drafter)

    def reserve(self, places: int, positions: int) -> None:
        """Nothing is kept."""

    def join(self, place: int, tokens: list[int], context: Tensor) -> None:
        """Nothing is kept."""

    def propose(
        self, places: Tensor, true_token: Tensor, context: Tensor, beam_width: int, draft_len: int
    ) -> Tensor:
        """Draft from the context alone."""
        beams = beam_search(self.drafter, self.embed, true_token, context, beam_width, draft_len)
        return repeat_to_width(beams, beam_width)

    def observe(self, places: list[int], tokens: list[list[int]], context: Tensor) -> None:
        """Nothing is kept."""

    def leave(self, place: int) -> None:
        """Nothing is kept."""
