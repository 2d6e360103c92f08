"""The decode loop: requests join, are drafted for, verified and committed, and leave.

`DecodeLoop.step` is the heart of the engine. One forward of the base model serves the
prompts that join and the draft trees of everything that runs; one read back brings the step's
tokens to the host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from profiles.records import RequestRecord, StepRecord
from tuner.engines.base import Request
from tuner.engines.redrafter.accept import Accepted, accept, choose
from tuner.engines.redrafter.attention import StepAttention, TreeSpan, tree_mask
from tuner.engines.redrafter.beam import beam_search
from tuner.engines.redrafter.clock import PhaseClock
from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.kv_cache import KVCache, blocks_for
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.sequence import Sequence
from tuner.engines.redrafter.tree import DraftTree, build_tree, root_only
from tuner.errors import BadInput


@dataclass(slots=True)
class Running:
    """Generation requests of a step, one row each; `sequences` is the host's side of the rows."""

    sequences: list[Sequence]
    true_token: Tensor  # [B] chosen by the base model, not yet in the cache
    context: Tensor  # [B, context_size] hidden state it was chosen from
    slots: Tensor  # [B, capacity] slot of every position

    def __len__(self) -> int:
        return len(self.sequences)


@dataclass(frozen=True, slots=True)
class Verified:
    """What the forward gave, row by row of the prompts' last tokens and the tree nodes."""

    prompt_choice: Tensor  # [P]
    prompt_context: Tensor  # [P, context_size]
    tree_choice: Tensor  # [B, N]
    tree_context: Tensor  # [B, N, context_size]


class DecodeLoop:
    """Serves requests on loaded weights, `batch_size` at a time."""

    def __init__(
        self,
        model: Llama,
        drafter: Drafter | None,
        cache: KVCache,
        beam_width: int,
        draft_len: int,
        batch_size: int,
        max_seq_len: int,
        seed: int = 0,
    ) -> None:
        self.model, self.drafter, self.cache = model, drafter, cache
        self.beam_width, self.draft_len = beam_width, draft_len
        self.batch_size, self.max_seq_len = batch_size, max_seq_len
        self.device = cache.data.device
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.context_layers = drafter.config.context_layers if drafter else ()
        self.running = self._none_running()
        self.joining: list[Sequence] = []
        self.steps = 0

    @property
    def busy(self) -> bool:
        """Whether anything is left to do."""
        return bool(self.joining or self.running.sequences)

    def admit(self, pending: Iterator[Request]) -> None:
        """Let requests join while there is a free place."""
        while len(self.running) + len(self.joining) < self.batch_size:
            request = next(pending, None)
            if request is None:
                return
            self.joining.append(self._join(request))

    def release(self) -> None:
        """Give every block back; what was unfinished is dropped."""
        for sequence in (*self.running.sequences, *self.joining):
            self.cache.pool.give(sequence.blocks)
        self.running, self.joining = self._none_running(), []

    @torch.inference_mode()
    def step(self) -> tuple[StepRecord, list[RequestRecord]]:
        """Run one step; return its record and the requests that it finished."""
        clock = PhaseClock(self.device)
        clock.begin("draft")
        tree = self._draft()
        clock.begin("verify")
        verified = self._verify(tree)
        clock.begin("accept")
        accepted = accept(tree, verified.tree_choice)
        self._keep_accepted(accepted)
        clock.begin("host")
        lengths, tokens, firsts = self._read_back(accepted, verified.prompt_choice)
        phase_ms = clock.durations_ms()
        record = StepRecord(
            index=self.steps,
            start_s=clock.start_s,
            draft_ms=phase_ms["draft"],
            verify_ms=phase_ms["verify"],
            accept_ms=phase_ms["accept"],
            host_ms=0.0,
            context_requests=len(self.joining),
            context_tokens=sum(len(s.request.prompt_token_ids) for s in self.joining),
            request_ids=[s.request.id for s in self.running.sequences],
            tree_nodes=tree.count.tolist(),
            accepted=lengths,
            kv_used_bytes=self.cache.used_bytes,
        )
        now = time.perf_counter()
        for sequence, length, row in zip(self.running.sequences, lengths, tokens, strict=True):
            record.committed.append(sequence.commit(row[: length + 1], now))
        for sequence, first in zip(self.joining, firsts, strict=True):
            sequence.commit([first], now)
        self._advance(accepted, verified)
        finished = self._leave()
        self.steps += 1
        clock.end()
        wall_ms = (time.perf_counter() - clock.start_s) * 1e3
        record.host_ms = max(0.0, wall_ms - record.total_ms)
        return record, finished

    def _draft(self) -> DraftTree:
        if self.draft_len == 0 or not len(self.running):
            return root_only(self.running.true_token)
        assert self.drafter is not None, "draft_len > 0 needs a drafter"
        beams = beam_search(
            self.drafter,
            self.model.embed_tokens,
            self.running.true_token,
            self.running.context,
            self.beam_width,
            self.draft_len,
        )
        return build_tree(beams)

    def _verify(self, tree: DraftTree) -> Verified:
        """One forward over the joining prompts and the trees."""
        batch, nodes = tree.tokens.shape
        prompts = [torch.tensor(s.request.prompt_token_ids) for s in self.joining]
        lengths = [len(prompt) for prompt in prompts]
        ends = torch.tensor(lengths, dtype=torch.long).cumsum(0)
        tokens, positions, slots, span = self._tree_inputs(tree)
        if prompts:
            arange = torch.cat([torch.arange(length) for length in lengths])
            tokens = torch.cat((torch.cat(prompts).to(self.device), tokens))
            positions = torch.cat((arange.to(self.device), positions))
            starts = [s.slots[:length] for s, length in zip(self.joining, lengths, strict=True)]
            slots = torch.cat((*starts, slots))
        spans = [(int(end) - length, int(end)) for end, length in zip(ends, lengths, strict=True)]
        attend = StepAttention(self.cache, slots, spans, span)
        hidden, context = self.model(tokens, positions, attend, self.context_layers)
        if prompts:  # of a prompt only the last token is asked for what comes next
            trees = torch.arange(sum(lengths), len(tokens))
            rows = torch.cat((ends - 1, trees)).to(self.device)
            hidden, context = hidden[rows], context[rows]
        choice = choose(self.model.logits(hidden), self._temperature(nodes), self.generator)
        first = len(prompts)
        return Verified(
            prompt_choice=choice[:first],
            prompt_context=context[:first],
            tree_choice=choice[first:].view(batch, nodes),
            tree_context=context[first:].view(batch, nodes, context.shape[-1]),
        )

    def _tree_inputs(self, tree: DraftTree) -> tuple[Tensor, Tensor, Tensor, TreeSpan | None]:
        """Return tokens, positions and slots of all tree nodes, flat, and how they attend."""
        batch, nodes = tree.tokens.shape
        if batch == 0:
            nothing = torch.empty(0, dtype=torch.long, device=self.device)
            return nothing, nothing, nothing, None
        lens = [s.kv_len for s in self.running.sequences]
        kv_len = torch.tensor(lens, device=self.device)
        node = torch.arange(nodes, device=self.device)
        slots = self.running.slots.gather(1, kv_len.unsqueeze(1) + node)
        slots = slots.where(node < tree.count.unsqueeze(1), 0)
        span = max(lens) + nodes
        mask = None
        if nodes > 1 or min(lens) < max(lens):
            config = self.model.config
            group = config.num_heads // config.num_kv_heads
            mask = tree_mask(tree.sees, kv_len, span, group, self.cache.data.dtype)
        run = _one_run(self.running.sequences, span)
        trees = TreeSpan(batch, nodes, self.running.slots[:, :span], run, mask)
        positions = kv_len.unsqueeze(1) + tree.depth
        return tree.tokens.flatten(), positions.flatten(), slots.flatten(), trees

    def _temperature(self, nodes: int) -> Tensor | None:
        """Temperature of every row of logits; None when all are greedy."""
        joining = [s.request.temperature for s in self.joining]
        running = [s.request.temperature for s in self.running.sequences]
        if not any(joining) and not any(running):
            return None
        rows = joining + [t for t in running for _ in range(nodes)]
        return torch.tensor(rows, device=self.device)

    def _keep_accepted(self, accepted: Accepted) -> None:
        """Move the accepted nodes' keys and values to the end of their context."""
        length = accepted.path.shape[1]
        if self.beam_width == 1 or length == 1 or not len(self.running):
            return  # a chain is already in place
        lens = torch.tensor([s.kv_len for s in self.running.sequences], device=self.device)
        step = torch.arange(length, device=self.device)
        source = self.running.slots.gather(1, lens.unsqueeze(1) + accepted.path)
        target = self.running.slots.gather(1, lens.unsqueeze(1) + step)
        kept = step <= accepted.length.unsqueeze(1)
        # NOTE: leftovers go from slot 0 to slot 0, nobody's, so that no target is named twice.
        self.cache.move(source.where(kept, 0).flatten(), target.where(kept, 0).flatten())

    def _read_back(
        self, accepted: Accepted, firsts: Tensor
    ) -> tuple[list[int], list[list[int]], list[int]]:
        """Bring lengths [B], tokens [B, L] and first tokens [P] to the host in one copy."""
        batch, length = accepted.tokens.shape
        flat = torch.cat((accepted.length, accepted.tokens.flatten(), firsts)).tolist()
        tokens = flat[batch : batch + batch * length]
        rows = [tokens[i * length : (i + 1) * length] for i in range(batch)]
        return flat[:batch], rows, flat[batch + batch * length :]

    def _advance(self, accepted: Accepted, verified: Verified) -> None:
        """Set the true token and context of every row; joined prompts become rows."""
        last = accepted.length.unsqueeze(1)
        node = accepted.path.gather(1, last).unsqueeze(-1)
        context = verified.tree_context
        context = context.gather(1, node.expand(-1, -1, context.shape[-1])).squeeze(1)
        true_token = accepted.tokens.gather(1, last).squeeze(1)
        if not self.joining:
            self.running.true_token, self.running.context = true_token, context
            return
        self.running = self._rows(
            self.running.sequences + self.joining,
            torch.cat((true_token, verified.prompt_choice)),
            torch.cat((context, verified.prompt_context)),
        )
        self.joining = []

    def _leave(self) -> list[RequestRecord]:
        """Take finished sequences out of the batch and give their blocks back."""
        running = self.running
        done = [s for s in running.sequences if s.finish_reason]
        if not done:
            return []
        for sequence in done:
            self.cache.pool.give(sequence.blocks)
        stay = [i for i, s in enumerate(running.sequences) if not s.finish_reason]
        rows = torch.tensor(stay, dtype=torch.long, device=self.device)
        self.running = self._rows(
            [running.sequences[i] for i in stay], running.true_token[rows], running.context[rows]
        )
        return [sequence.record() for sequence in done]

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
        room = prompt + new + self.beam_width * self.draft_len + 1
        blocks = self.cache.pool.take(blocks_for(room))
        assert blocks is not None, "the cache is sized for batch_size sequences of max_seq_len"
        return Sequence(request, blocks, self.cache.slots_of(blocks), time.perf_counter())

    def _rows(self, sequences: list[Sequence], true_token: Tensor, context: Tensor) -> Running:
        if not sequences:
            return self._none_running()
        slots = torch.nn.utils.rnn.pad_sequence([s.slots for s in sequences], batch_first=True)
        return Running(sequences, true_token, context, slots)

    def _none_running(self) -> Running:
        none = torch.empty(0, dtype=torch.long, device=self.device)
        width = self.model.config.hidden_size * (1 + len(self.context_layers))
        context = torch.empty(0, width, device=self.device, dtype=self.cache.data.dtype)
        return Running([], none, context, none.view(0, 0))


def _one_run(sequences: list[Sequence], span: int) -> slice | None:
    """The slots of a lone sequence as a slice, when its blocks lie side by side."""
    blocks = sequences[0].blocks
    if len(sequences) > 1 or blocks[-1] - blocks[0] != len(blocks) - 1:
        return None
    first = int(sequences[0].slots[0])
    return slice(first, first + span)
