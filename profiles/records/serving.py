"""What an engine yields while it serves: steps and requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length"]
STEP_PHASES = ("prefill", "draft", "tree", "verify", "accept", "host")
"""Where a step's wall time goes, in the order in which a step does it."""


@dataclass(slots=True)
class StepRecord:
    """One engine step: a draft, one forward of the base model, acceptance.

    A step serves `context_requests` prompts being read for the first time and any number of
    generation requests; the four lists have one entry per generation request, in batch order.

    `prefill_ms` reads the prompts that join, `tree_ms` merges beams into the tree and `host_ms` is
    what the other phases leave of the step's wall time. An engine that cannot tell prefill from
    verify, or tree from draft, leaves them 0 and counts that time there.
    """

    index: int
    start_s: float
    draft_ms: float
    verify_ms: float
    accept_ms: float
    host_ms: float
    context_requests: int = 0
    context_tokens: int = 0
    request_ids: list[str] = field(default_factory=list)
    tree_nodes: list[int] = field(default_factory=list)  # root included
    accepted: list[int] = field(default_factory=list)  # by the verifier, before any cut
    committed: list[int] = field(default_factory=list)  # reached the user, after stop and length
    kv_used_bytes: int = 0
    prefill_ms: float = 0.0
    tree_ms: float = 0.0
    draft_len: int | None = None  # tokens drafted per beam; None: as many as the config says

    @property
    def phases_ms(self) -> tuple[float, ...]:
        """Milliseconds of each of `STEP_PHASES`."""
        return (
            self.prefill_ms,
            self.draft_ms,
            self.tree_ms,
            self.verify_ms,
            self.accept_ms,
            self.host_ms,
        )

    @property
    def total_ms(self) -> float:
        """Wall time of the whole step in milliseconds."""
        return sum(self.phases_ms)


@dataclass(slots=True)
class RequestRecord:
    """One finished request. Emission k delivered `emission_tokens[k]` tokens at `emission_s[k]`."""

    id: str
    category: str
    prompt_tokens: int
    output_token_ids: list[int]
    finish_reason: FinishReason
    arrival_s: float
    emission_s: list[float]
    emission_tokens: list[int]

    @property
    def output_tokens(self) -> int:
        """Number of tokens that reached the user."""
        return len(self.output_token_ids)
