"""The decode loop: requests join, are drafted for, verified and committed, and leave.

`DecodeLoop.step` is the heart of the engine. It reads the prompts that join, runs one generation
step over everything that runs, and brings what both gave to the host in one read back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from profiles.records import RequestRecord, StepRecord
from tuner.engines.base import Request
from tuner.engines.redrafter.accept import choose
from tuner.engines.redrafter.attention import PromptAttention
from tuner.engines.redrafter.clock import PhaseClock
from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.generation import Generation, StepShape
from tuner.engines.redrafter.graphs import Graphs
from tuner.engines.redrafter.kv_cache import BLOCK, KVCache, blocks_for
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.rows import Rows
from tuner.engines.redrafter.sequence import Sequence
from tuner.errors import BadInput


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step gave, on the host."""

    accepted: list[int]  # drafted tokens accepted, by running request
    tree_nodes: list[int]
    tokens: list[list[int]]  # accepted tokens and the extra one
    firsts: list[int]  # first token of every prompt that was read


class DecodeLoop:
    """Serves requests on loaded weights, `batch_size` at a time.

    It can serve again and again; on CUDA the captured graphs stay with it.
    """

    def __init__(
        self,
        model: Llama,
        drafter: Drafter | None,
        cache: KVCache,
        beam_width: int,
        draft_len: int,
        batch_size: int,
        max_seq_len: int,
    ) -> None:
        self.model, self.cache = model, cache
        self.max_seq_len = max_seq_len
        self.room = 1 + beam_width * draft_len
        self.device = cache.data.device
        self.drafter = drafter if draft_len > 0 else None
        taps = len(self.drafter.config.context_layers) if self.drafter else 0
        self.rows = Rows(
            batch_size,
            blocks_for(max_seq_len + self.room) * BLOCK,
            model.config.hidden_size * (1 + taps),
            self.device,
            cache.data.dtype,
        )
        self.generation = Generation(model, self.drafter, cache, self.rows, beam_width, draft_len)
        self.graphs = Graphs(self.generation) if self.device.type == "cuda" else None
        self.joining: list[Sequence] = []
        self.steps = 0

    @property
    def busy(self) -> bool:
        """Whether anything is left to do."""
        return bool(self.joining or self.rows.sequences)

    def start(self, seed: int) -> None:
        """Begin to serve; `seed` fixes what is sampled."""
        self.generation.generator.manual_seed(seed)
        self.steps = 0

    def admit(self, pending: Iterator[Request]) -> None:
        """Let requests join while there is a free place."""
        while len(self.rows) + len(self.joining) < self.rows.places:
            request = next(pending, None)
            if request is None:
                return
            self.joining.append(self._join(request))

    def release(self) -> None:
        """Give every block back; what was unfinished is dropped."""
        for sequence in (*self.rows.sequences, *self.joining):
            self.cache.pool.give(sequence.blocks)
        self.rows.clear()
        self.joining = []

    @torch.inference_mode()
    def step(self) -> tuple[StepRecord, list[RequestRecord]]:
        """Run one step; return its record and the requests that it finished."""
        clock = PhaseClock(self.device)
        prefilled = self._prefill(clock) if self.joining else None
        generated = self._generate(clock) if len(self.rows) else None
        clock.begin("host")
        outcome = self._read_back(generated, prefilled[0] if prefilled else None)
        record = self._record(clock, outcome)
        now = time.perf_counter()
        for sequence, tokens in zip(self.rows.sequences, outcome.tokens, strict=True):
            record.committed.append(sequence.commit(tokens, now))
        for sequence, first in zip(self.joining, outcome.firsts, strict=True):
            sequence.commit([first], now)
        if prefilled:
            self.rows.join(self.joining, *prefilled)
            self.joining = []
        done = self.rows.leave()
        for sequence in done:
            self.cache.pool.give(sequence.blocks)
        self.steps += 1
        clock.end()
        record.host_ms = max(0.0, (time.perf_counter() - clock.start_s) * 1e3 - record.total_ms)
        return record, [sequence.record() for sequence in done]

    def _prefill(self, clock: PhaseClock) -> tuple[Tensor, Tensor]:
        """Read the joining prompts; return their first tokens [P] and contexts [P, C]."""
        clock.begin("prefill")
        prompts = [s.request.prompt_token_ids for s in self.joining]
        ends = torch.tensor([len(p) for p in prompts]).cumsum(0)
        spans = [(end - len(p), end) for end, p in zip(ends.tolist(), prompts, strict=True)]
        tokens = torch.tensor([token for p in prompts for token in p])
        positions = torch.cat([torch.arange(len(p)) for p in prompts])
        slots = torch.cat([s.slots[: len(p)] for s, p in zip(self.joining, prompts, strict=True)])
        attend = PromptAttention(self.cache, slots, spans)
        tokens, positions, last = (x.to(self.device) for x in (tokens, positions, ends - 1))
        hidden, context = self.model(tokens, positions, attend, self.generation.context_layers)
        temperatures = [s.request.temperature for s in self.joining]
        warm = torch.tensor(temperatures, device=self.device) if any(temperatures) else None
        first = choose(self.model.logits(hidden[last]), warm, self.generation.generator)
        return first, context[last]

    def _generate(self, clock: PhaseClock) -> Tensor:
        """Run one generation step over the running rows."""
        running = self.rows.sequences
        sampled = any(s.request.temperature for s in running)
        if self.graphs is not None:
            return self.graphs.run(self._static_shape(len(running), sampled), clock.begin)
        longest = max(s.kv_len for s in running)
        shape = StepShape(len(running), longest, None, sampled)
        return self.generation.run(shape, clock.begin)

    def capture(self, sampled: bool) -> None:
        """On CUDA, capture the step of every number of running requests, so that none is later."""
        if self.graphs is not None:
            for running in range(1, self.rows.places + 1):
                self.graphs.capture(self._static_shape(running, sampled))

    def _static_shape(self, running: int, sampled: bool) -> StepShape:
        """Return a shape that serves `running` requests of any length and any tree.

        Its rows are a power of two, or every place there is.
        """
        rows = min(1 << (running - 1).bit_length(), self.rows.places)
        return StepShape(rows, self.rows.capacity - self.room, self.room, sampled)

    def _read_back(self, generated: Tensor | None, firsts: Tensor | None) -> Outcome:
        """Bring everything that the step gave to the host in one copy."""
        parts = [part.flatten() for part in (generated, firsts) if part is not None]
        flat = torch.cat(parts).tolist()
        width = generated.shape[1] if generated is not None else 0
        rows = [flat[i * width : (i + 1) * width] for i in range(len(self.rows))]
        return Outcome(
            accepted=[row[0] for row in rows],
            tree_nodes=[row[1] for row in rows],
            tokens=[row[2 : 3 + row[0]] for row in rows],
            firsts=flat[len(flat) - len(self.joining) :],
        )

    def _record(self, clock: PhaseClock, outcome: Outcome) -> StepRecord:
        phase_ms = clock.durations_ms()
        return StepRecord(
            index=self.steps,
            start_s=clock.start_s,
            prefill_ms=phase_ms.get("prefill", 0.0),
            draft_ms=phase_ms.get("draft", 0.0),
            tree_ms=phase_ms.get("tree", 0.0),
            verify_ms=phase_ms.get("verify", 0.0),
            accept_ms=phase_ms.get("accept", 0.0),
            host_ms=0.0,
            context_requests=len(self.joining),
            context_tokens=sum(len(s.request.prompt_token_ids) for s in self.joining),
            request_ids=[s.request.id for s in self.rows.sequences],
            tree_nodes=outcome.tree_nodes,
            accepted=outcome.accepted,
            kv_used_bytes=self.cache.used_bytes,
        )

    def _join(self, request: Request) -> Sequence:
        prompt, new = len(request.prompt_token_ids), request.max_new_tokens
        if prompt == 0:
            raise BadInput("prompt", request.id, "is empty")
        if prompt + new > self.max_seq_len:
            raise BadInput(
                "max_new_tokens",
                new,
                f"request {request.id} has {prompt} prompt tokens and sequences hold at most "
                f"{self.max_seq_len}; allow at most {self.max_seq_len - prompt}",
            )
        blocks = self.cache.pool.take(blocks_for(prompt + new + self.room))
        assert blocks is not None, "the cache is sized for batch_size sequences of max_seq_len"
        return Sequence(request, blocks, self.cache.slots_of(blocks), time.perf_counter())
