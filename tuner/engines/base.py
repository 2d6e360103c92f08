"""The interface of a live engine: support, prepare, serve, close.

It has to fit two very different engines. Ours takes any (beam_width, draft_len) at once on weights
that stay loaded; TensorRT-LLM builds an engine of minutes for every pair and serves batches up to
a built maximum. So `prepare` reports progress and cost and may be called again with another
config, and the caller orders its work so that expensive preparations are few.

Engines see token ids only. Rendering prompts and tokenizing belong to `tuner.workloads`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from profiles.records import MemorySplit, RequestRecord, StepRecord, TrialConfig

if TYPE_CHECKING:
    from tuner.workloads.tokenizer import Tokenizer

Progress = Callable[[float, str], None]
"""Called with a fraction in [0, 1] and one line of what is being done."""


@dataclass(frozen=True, slots=True)
class Request:
    """One generation request, already tokenized.

    `stop_token_ids` end the output and are part of it, as `transformers` generate does.
    """

    id: str
    prompt_token_ids: tuple[int, ...]
    max_new_tokens: int
    temperature: float = 0.0
    stop_token_ids: frozenset[int] = frozenset()
    category: str = "none"


@dataclass(frozen=True, slots=True)
class Support:
    """What an engine can do on this host. A refused precision maps to its reason."""

    available: bool
    reason: str | None = None  # why not, with the fix
    device: str | None = None
    gpu_uuids: tuple[str, ...] = ()  # the GPUs it would use, as NVML names them
    precisions: tuple[str, ...] = ()
    refused_precisions: dict[str, str] = field(default_factory=dict)
    max_beam_width: int = 64
    max_draft_len: int = 16
    any_config_at_once: bool = True  # False: every (beam_width, draft_len) is a build


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `prepare` did: `cost_s` seconds, and the precision and compute path in force.

    `memory_predicted` was told before anything was loaded; None: this engine cannot tell.
    """

    cost_s: float
    device: str
    precision: str
    compute: str
    memory_predicted: MemorySplit | None = None


class Engine(ABC):
    """A live engine. One instance serves one config at a time; not thread-safe."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def support(cls, device: str = "auto") -> Support:
        """Say what this host can run, without loading a model. Never raises."""

    @classmethod
    def tokenizer(cls, config: TrialConfig) -> Tokenizer:
        """Return the tokenizer of `config.model`. Raises BadInput for an unknown model."""
        from tuner.models import resolve_model
        from tuner.workloads.tokenizer import HFTokenizer

        return HFTokenizer(resolve_model(config.model))

    @classmethod
    def longest_draft(cls, config: TrialConfig) -> int | None:
        """Return the draft length that the drafter of `config` was trained for; None: any.

        Raises:
            BadInput: a drafter that cannot be found or read.
        """
        return None

    @abstractmethod
    def prepare(
        self, config: TrialConfig, max_seq_len: int, on_progress: Progress | None = None
    ) -> Prepared:
        """Load or build what `config` needs; sequences hold at most `max_seq_len` tokens.

        Calling it again replaces the config in force and reuses whatever still fits.

        Raises:
            BadInput: unknown model, corrupt checkpoint, a drafter that does not fit.
            UnsupportedConfig: this engine or host cannot run the config.
            OutOfMemory: the config does not fit; the engine stays usable for smaller ones.
        """

    @abstractmethod
    def serve(
        self, requests: Iterable[Request], seed: int = 0, ahead: bool = True
    ) -> Iterator[StepRecord | RequestRecord]:
        """Serve `requests`, at most `batch_size` at once, yielding records as they come.

        `seed` fixes what is sampled at temperature > 0. With `ahead` a step may begin before the
        record of the last one is taken; without, what the caller does in between is between them.

        Requests are taken in order and join as soon as a place is free. Every request gives
        exactly one RequestRecord, after the StepRecord of the step that finished it.

        Raises:
            BadInput: a prompt that does not fit `max_seq_len`, or is empty.
            OutOfMemory, EngineFailure: the serving broke; the instance must be closed.
        """

    @abstractmethod
    def memory(self) -> MemorySplit:
        """Bytes held now, split by use."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. Safe to call twice."""
