"""An engine without a model: recorded timings, a virtual clock, deterministic text.

It drives every test that needs no model and shows the dashboard's life without computing anything.
Its text is a hash of the prompt and the position, so it never depends on the config, as greedy text
must not. Nothing it says is a measurement, and its device is named "fake" wherever it is recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from profiles.records import FinishReason, MemorySplit, RequestRecord, StepRecord, TrialConfig
from tuner.engines.base import Engine, Prepared, Progress, Request, Support
from tuner.errors import BadInput, EngineFailure, OutOfMemory, UnsupportedConfig
from tuner.workloads.workload import Message

VOCABULARY = 1000


@dataclass(frozen=True, slots=True)
class Timings:
    """Step times in milliseconds and acceptance, recorded from a 2-core host with SmolLM2-135M."""

    base_ms: float = 24.0  # one row
    row_ms: float = 1.6  # every further row of the batch
    draft_ms: float = 1.1  # one drafting iteration
    beam_ms: float = 0.05  # every further beam of it
    prompt_token_ms: float = 0.6
    host_ms: float = 0.4
    acceptance: tuple[float, ...] = (0.60, 0.52, 0.46, 0.42, 0.40, 0.38)
    shared_prefix: float = 0.25  # share of beam cells that merging removes


@dataclass(slots=True)
class _Place:
    request: Request
    arrival_s: float
    output: list[int] = field(default_factory=list)
    emission_s: list[float] = field(default_factory=list)
    emission_tokens: list[int] = field(default_factory=list)
    finish: FinishReason | None = None

    def commit(self, count: int, now_s: float) -> int:
        """Write up to `count` tokens, ending at a stop token or the limit."""
        written = 0
        while written < count and self.finish is None:
            token = self._token(len(self.output))
            self.output.append(token)
            written += 1
            if token in self.request.stop_token_ids:
                self.finish = "stop"
            elif len(self.output) == self.request.max_new_tokens:
                self.finish = "length"
        self.emission_s.append(now_s)
        self.emission_tokens.append(written)
        return written

    def _token(self, position: int) -> int:
        return _hash(self.request.prompt_token_ids, position) % VOCABULARY

    def record(self) -> RequestRecord:
        assert self.finish is not None
        return RequestRecord(
            self.request.id,
            self.request.category,
            len(self.request.prompt_token_ids),
            self.output,
            self.finish,
            self.arrival_s,
            self.emission_s,
            self.emission_tokens,
        )


_NO_TIMINGS = "the fake engine has no recorded timings of it; use fp32, fp16 or bf16"


class FakeTokenizer:
    """Bytes as tokens."""

    stop_token_ids: frozenset[int] = frozenset()

    def render(self, messages: Sequence[Message]) -> str:
        """Join the messages."""
        return "\n".join(message.content for message in messages)

    def encode(self, text: str) -> list[int]:
        """Return the UTF-8 bytes."""
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        """Return the ids, spelled out."""
        return " ".join(map(str, ids))


class FakeEngine(Engine):
    """Serves on a virtual clock that starts at 0 and is never set back."""

    name = "fake"

    def __init__(self, timings: Timings | None = None, memory_bytes: int = 8 << 30) -> None:
        self._timings = timings or Timings()
        self._memory_bytes = memory_bytes
        self._config: TrialConfig | None = None
        self._max_seq_len = 0
        self._now_s = 0.0
        self._steps = 0

    @classmethod
    def support(cls, device: str = "auto") -> Support:
        """Every host runs the fake engine, in three precisions."""
        return Support(
            available=True,
            device="fake",
            precisions=("fp32", "bf16", "fp16"),
            refused_precisions=dict.fromkeys(("fp8", "int8_sq", "int4_awq"), _NO_TIMINGS),
        )

    @classmethod
    def tokenizer(cls, config: TrialConfig) -> FakeTokenizer:
        """Return bytes as tokens; there is no model to ask."""
        return FakeTokenizer()

    def prepare(
        self, config: TrialConfig, max_seq_len: int, on_progress: Progress | None = None
    ) -> Prepared:
        """Accept any config whose KV memory fits."""
        precision = config.quantization or "bf16"
        if precision not in self.support().precisions:
            raise UnsupportedConfig("quantization", precision, _NO_TIMINGS)
        if config.model == "crash":
            raise EngineFailure("the fake engine was asked to fail")
        self._config, self._max_seq_len = config, max_seq_len
        if self._kv_bytes() > self._memory_bytes:
            self._config = None
            raise OutOfMemory(f"batch_size = {config.batch_size} does not fit; lower batch_size")
        if on_progress:
            on_progress(1.0, "ready")
        return Prepared(cost_s=0.0, device="fake", precision=precision, compute="recorded timings")

    def serve(
        self, requests: Iterable[Request], seed: int = 0, ahead: bool = True
    ) -> Iterator[StepRecord | RequestRecord]:
        """Play the timings back, a step for every record that is taken."""
        assert self._config, "prepare comes first"
        pending = iter(requests)
        running: list[_Place] = []
        while True:
            joining = self._admit(pending, self._config.batch_size - len(running))
            if not running and not joining:
                return
            record = self._step(running, joining)
            running += joining
            yield record
            yield from (place.record() for place in running if place.finish)
            running = [place for place in running if not place.finish]

    def memory(self) -> MemorySplit:
        """Return invented but consistent bytes."""
        kv = self._kv_bytes()
        return MemorySplit(
            weights_bytes=269_000_000,
            drafter_bytes=15_000_000,
            kv_bytes=kv,
            rest_bytes=0,
            peak_bytes=284_000_000 + kv,
        )

    def close(self) -> None:
        """Forget the config."""
        self._config = None

    def _kv_bytes(self) -> int:
        assert self._config
        return self._config.batch_size * self._max_seq_len * 23_040

    def _admit(self, pending: Iterator[Request], places: int) -> list[_Place]:
        joining: list[_Place] = []
        while len(joining) < places and (request := next(pending, None)) is not None:
            length = len(request.prompt_token_ids)
            if length == 0:
                raise BadInput("prompt", request.id, "is empty")
            if length + request.max_new_tokens > self._max_seq_len:
                raise BadInput("max_new_tokens", request.max_new_tokens, "does not fit max_seq_len")
            joining.append(_Place(request, self._now_s))
        return joining

    def _step(self, running: list[_Place], joining: list[_Place]) -> StepRecord:
        assert self._config
        width, length, t = self._config.beam_width, self._draft_len(len(running)), self._timings
        cells = width * length
        nodes = 1 + max(length, round(cells * (1 - t.shared_prefix))) if length else 1
        prompt_tokens = sum(len(p.request.prompt_token_ids) for p in joining)
        rows = nodes * len(running) + len(joining)
        record = StepRecord(
            index=self._steps,
            start_s=self._now_s,
            draft_ms=length * (t.draft_ms + t.beam_ms * (width * len(running) - 1)),
            verify_ms=t.base_ms + t.row_ms * (rows - 1) + t.prompt_token_ms * prompt_tokens,
            accept_ms=0.1,
            host_ms=t.host_ms,
            context_requests=len(joining),
            context_tokens=prompt_tokens,
            request_ids=[p.request.id for p in running],
            tree_nodes=[nodes] * len(running),
            accepted=[self._accepted(p, length) for p in running],
            kv_used_bytes=self._kv_bytes(),
            draft_len=length,
        )
        self._steps += 1
        self._now_s += record.total_ms / 1e3
        record.committed = [
            place.commit(1 + accepted, self._now_s)
            for place, accepted in zip(running, record.accepted, strict=True)
        ]
        for place in joining:
            place.commit(1, self._now_s)
        return record

    def _draft_len(self, running: int) -> int:
        """Draft as far as is allowed: these timings do not move."""
        assert self._config
        most = self._config.speculate_up_to
        return self._config.draft_len if 0 < running <= (most or running) else 0

    def _accepted(self, place: _Place, draft_len: int) -> int:
        """Accept drafts one by one, the chance rising with the beams."""
        assert self._config
        for k in range(draft_len):
            table = self._timings.acceptance
            chance = 1 - (1 - table[min(k, len(table) - 1)]) ** (
                1 + 0.2 * (self._config.beam_width - 1)
            )
            draw = _hash(place.request.prompt_token_ids, 7919 * (len(place.output) + k) + 1)
            if draw % 10_000 >= 10_000 * chance:
                return k
        return draft_len


def _hash(prompt: tuple[int, ...], salt: int) -> int:
    digest = hashlib.blake2b(repr((prompt, salt)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
