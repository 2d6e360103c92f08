"""The decode loop: requests join, are drafted for, verified and committed, and leave.

`DecodeLoop.serve` is the heart of the engine. Every step reads prompts that join, runs one
generation step over everything that runs, and brings what both gave to the host in one read back.
On CUDA the next step is launched before that arrives wherever it is certain to be needed, so that
the device never waits for the host; a request that a stop token ends is then carried through one
step too many, whose tokens are dropped. Otherwise the next step is launched before the last one is
recorded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from profiles.records import RequestRecord, StepRecord
from tuner.engines.base import Request
from tuner.engines.redrafter.clock import PhaseClock
from tuner.engines.redrafter.draft_length import DraftLength
from tuner.engines.redrafter.drafters.base import DraftMethod
from tuner.engines.redrafter.generation import Generation, StepShape
from tuner.engines.redrafter.graphs import Eager, Graphs, Runner
from tuner.engines.redrafter.kv_cache import BLOCK, KVCache, blocks_for
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.prefill import PADDED_SIZES, ChunkShape, Prefill, padded_size
from tuner.engines.redrafter.rows import Rows, positions_of
from tuner.engines.redrafter.sequence import Sequence
from tuner.engines.redrafter.step import Launched, bring
from tuner.errors import BadInput

PROMPT_TOKENS_PER_STEP = 512  # prompts longer than that are read beside running generations


class DecodeLoop:
    """Serves requests on loaded weights, `batch_size` at a time.

    It can serve again and again; on CUDA the captured graphs stay with it. `static` pads the work
    of every step to a few shapes, as CUDA graphs need.
    """

    def __init__(
        self,
        model: Llama,
        method: DraftMethod | None,
        cache: KVCache,
        beam_width: int,
        draft_length: DraftLength,
        batch_size: int,
        max_seq_len: int,
        static: bool | None = None,
    ) -> None:
        self.cache, self.max_seq_len = cache, max_seq_len
        longest = draft_length.longest
        self.draft_length, self.room = draft_length, 1 + beam_width * longest
        self.device = cache.data.device
        self.static = self.device.type == "cuda" if static is None else static
        self.method = method if longest > 0 else None
        taps = len(self.method.context_layers) if self.method else 0
        self.rows = Rows(
            batch_size,
            blocks_for(positions_of(max_seq_len, beam_width, longest)) * BLOCK,
            model.config.hidden_size * (1 + taps),
            self.device,
            cache.dtype,
        )
        self.generation = Generation(model, self.method, cache, self.rows, beam_width, longest)
        self.prefill = Prefill(
            model,
            cache,
            self.generation.context_layers,
            self.rows.capacity,
            self.generation.generator,
        )
        self.generation_steps: Runner[StepShape, Tensor] = Eager(self.generation.run)
        self.prefill_chunks: Runner[ChunkShape, tuple[Tensor, Tensor]] = Eager(self.prefill.run)
        if self.device.type == "cuda":
            generator = self.generation.generator
            self.generation_steps = Graphs(self.generation.run, self.rows.tensors(), generator)
            self.prefill_chunks = Graphs(self.prefill.run, (), generator)
        self.joining: list[Sequence] = []
        self.free_places = list(range(batch_size, 0, -1))
        self.steps, self.ended_s = 0, 0.0

    def serve(
        self, requests: Iterable[Request], seed: int = 0, ahead: bool = True
    ) -> Iterator[StepRecord | RequestRecord]:
        """Serve `requests` as places become free; see `Engine.serve`."""
        self.generation.generator.manual_seed(seed)
        self.steps, pending = 0, iter(requests)
        try:
            self._admit(pending)
            launched = self._launch()
            while launched:
                sure = ahead and self._sure_of_another(launched)
                following = self._launch() if sure else None
                step, done = self._finish(launched)
                self._admit(pending)
                if ahead and following is None:
                    following = self._launch()
                yield step
                yield from (sequence.record() for sequence in done)
                launched = following or self._launch()
        finally:
            self._release()

    def _admit(self, pending: Iterator[Request]) -> None:
        """Let requests join while there is a free place."""
        while len(self.rows) + len(self.joining) < self.rows.places:
            request = next(pending, None)
            if request is None:
                return
            self.joining.append(self._join(request))

    def _release(self) -> None:
        """Give every block back; what was unfinished is dropped."""
        for sequence in (*self.rows.sequences, *self.joining):
            self._give_back(sequence)
        self.rows.clear()
        self.joining = []

    @torch.inference_mode()
    def _launch(self) -> Launched | None:
        """Begin the next step, unless nothing is left to do."""
        if not self.joining and not self.rows.sequences:
            return None
        clock = PhaseClock(self.device)
        running, reading = list(self.rows.sequences), len(self.joining)
        read_before = sum(s.read for s in self.joining)
        ends = self._read_prompts(clock)
        draft_len, parts = 0, [token for token, _ in ends]
        if running:
            draft_len = self.draft_length.choose([s.accepted for s in running])
            parts.insert(0, self._generate(clock, draft_len)[: len(running)].flatten())
        given = bring(parts)
        clock.begin("host")
        read = sum(s.read for s in self.joining) - read_before
        return Launched(clock, running, reading, read, ends, given, draft_len)

    def _sure_of_another(self, launched: Launched) -> bool:
        """Whether a step has to follow `launched` that nothing on the host can change."""
        if not self.static or self.joining or not self._drafts_alone():
            return False
        most = 1 + launched.draft_len
        running = (s for s in launched.running if not s.finish_reason)
        return any(s.request.max_new_tokens - len(s.output) > most for s in running)

    def _drafts_alone(self) -> bool:
        return self.method is None or (self.method.graph_safe and not self.method.remembers)

    @torch.inference_mode()
    def _finish(self, launched: Launched) -> tuple[StepRecord, list[Sequence]]:
        """Commit what a step gave; return its record and the requests that it finished."""
        clock, ends = launched.clock, launched.ends
        phase_ms = clock.durations_ms()  # waits for the device
        outcome = launched.outcome()
        # NOTE: a step that was launched ahead starts when the last one ends.
        start_s = max(clock.start_s, self.ended_s)
        record = launched.record(self.steps, start_s, phase_ms, outcome, self.cache.used_bytes)
        now = time.perf_counter()
        if launched.draft_len:
            for sequence, accepted in zip(outcome.running, outcome.accepted, strict=True):
                sequence.accepted.append(accepted)
        for sequence, tokens in zip(outcome.running, outcome.tokens, strict=True):
            record.committed.append(sequence.commit(tokens, now))
        joined, self.joining = self.joining[: len(ends)], self.joining[len(ends) :]
        for sequence, first in zip(joined, outcome.firsts, strict=True):
            sequence.commit([first], now)
        self._tell(joined)
        if joined:
            self.rows.join(joined, *(torch.cat(part) for part in zip(*ends, strict=True)))
        done = self.rows.leave()
        for sequence in done:
            self._give_back(sequence)
        self.steps += 1
        clock.end()
        self.ended_s = time.perf_counter()
        record.host_ms = max(0.0, (self.ended_s - record.start_s) * 1e3 - record.total_ms)
        return record, done

    def _read_prompts(self, clock: PhaseClock) -> list[tuple[Tensor, Tensor]]:
        """Read the joining prompts, in static shapes no more than a step's share of them.

        Returns:
            First token [1] and context [1, C] of every prompt that is read to its end, in order.
        """
        ends: list[tuple[Tensor, Tensor]] = []
        budget = PROMPT_TOKENS_PER_STEP
        for sequence in self.joining:
            while left := sequence.unread:
                size = padded_size(left) if self.static else left
                if self.static and budget <= 0:
                    return ends
                count = min(left, size)
                self.prefill.place(sequence, count)
                shape = ChunkShape(size, not self.static, sequence.request.temperature > 0)
                token, context = self.prefill_chunks.run(shape, clock.begin)
                sequence.read += count
                sequence.context = self._newest(sequence.context, context[:count])
                budget -= count
            assert sequence.context is not None
            ends.append((token.clone(), sequence.context[-1:]))
        return ends

    def _generate(self, clock: PhaseClock, draft_len: int) -> Tensor:
        """Run one generation step that drafts `draft_len` tokens over the running rows."""
        running = self.rows.sequences
        sampled = any(s.request.temperature for s in running)
        if self.static:
            shape = self._static_shape(len(running), sampled, draft_len)
        else:
            context = max(s.kv_len for s in running)
            shape = StepShape(len(running), context, None, sampled, draft_len)
        if self.method is not None and not self.method.graph_safe and draft_len > 0:
            clock.begin("draft")
            self._draft_on_host(self.method, draft_len)
        return self.generation_steps.run(shape, clock.begin)

    def _draft_on_host(self, method: DraftMethod, draft_len: int) -> None:
        running = len(self.rows)
        self.generation.beams[:running, :, : 1 + draft_len] = method.propose(
            torch.tensor([s.place for s in self.rows.sequences]),
            self.rows.true_token[:running],
            self.rows.context[:running],
            self.generation.beam_width,
            draft_len,
        )

    def _newest(self, before: Tensor | None, read: Tensor) -> Tensor:
        """Return the contexts of a prompt that the draft method is to be told, one at least."""
        window = max(1, self.method.context_window if self.method else 1)
        return (read if before is None else torch.cat((before, read)))[-window:].clone()

    def _tell(self, joined: list[Sequence]) -> None:
        """Tell the draft method what was committed and who begins."""
        if self.method is None or not self.method.remembers:
            return
        rows = [row for row, s in enumerate(self.rows.sequences) if not s.finish_reason]
        if rows:
            going = [self.rows.sequences[row] for row in rows]
            tokens = [s.output[-s.emission_tokens[-1] :] for s in going]
            context = self.generation.chosen_from
            context = context[rows] if len(context) else context
            self.method.observe([s.place for s in going], tokens, context)
        for sequence in joined:
            if not sequence.finish_reason:
                assert sequence.context is not None
                tokens_read = [*sequence.request.prompt_token_ids, *sequence.output]
                self.method.join(sequence.place, tokens_read, sequence.context)

    def _give_back(self, sequence: Sequence) -> None:
        self.cache.pool.give(sequence.blocks)
        self.free_places.append(sequence.place)
        if self.method is not None:
            self.method.leave(sequence.place)

    def capture(self, sampled: bool) -> None:
        """Prepare for every number of running requests and length, so that no step has to."""
        if self.static:
            for running in range(1, self.rows.places + 1):
                for draft_len in self.draft_length.possible(running):
                    shape = self._static_shape(running, sampled, draft_len)
                    self.generation_steps.capture(shape)
            for size in PADDED_SIZES:
                self.prefill_chunks.capture(ChunkShape(size, False, sampled))

    def _static_shape(self, running: int, sampled: bool, draft_len: int) -> StepShape:
        """Return a shape that serves `running` requests of any length and any tree of the draft.

        Its rows are a power of two, or every place there is.
        """
        rows = min(1 << (running - 1).bit_length(), self.rows.places)
        nodes = 1 + self.generation.beam_width * draft_len
        return StepShape(rows, self.rows.capacity - self.room, nodes, sampled, draft_len)

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
        return Sequence(
            request,
            blocks,
            self.cache.slots_of(blocks),
            time.perf_counter(),
            self.free_places.pop(),
            self.draft_length.unseen(),
        )
