"""A step on its way: launched on the device, then on the host, then recorded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from profiles.records import StepRecord
from tuner.engines.redrafter.clock import PhaseClock
from tuner.engines.redrafter.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step gave, on the host."""

    running: list[Sequence]  # requests of the step that were not over before it
    accepted: list[int]  # drafted tokens accepted, by request
    tree_nodes: list[int]
    tokens: list[list[int]]  # accepted tokens and the extra one
    firsts: list[int]  # first token of every prompt that was read


@dataclass(frozen=True, slots=True)
class Launched:
    """A step that the device is working on."""

    clock: PhaseClock
    running: list[Sequence]
    reading: int  # requests whose prompt is not read to its end
    context_tokens: int  # of prompts that are read
    ends: list[tuple[Tensor, Tensor]]  # first token and context of prompts that are read to the end
    given: Tensor  # on the host once the phases are over: generated rows, then first tokens
    draft_len: int

    def outcome(self) -> Outcome:
        """Take what the step gave apart; requests that were over before it are left out."""
        flat, firsts = self.given.tolist(), len(self.ends)
        generated = len(flat) - firsts
        width = generated // len(self.running) if self.running else 0
        rows = [
            (sequence, flat[i * width : (i + 1) * width])
            for i, sequence in enumerate(self.running)
            if not sequence.finish_reason
        ]
        return Outcome(
            running=[sequence for sequence, _ in rows],
            accepted=[row[0] for _, row in rows],
            tree_nodes=[row[1] for _, row in rows],
            tokens=[row[2 : 3 + row[0]] for _, row in rows],
            firsts=flat[generated:],
        )

    def record(
        self,
        index: int,
        start_s: float,
        phase_ms: dict[str, float],
        outcome: Outcome,
        kv_used_bytes: int,
    ) -> StepRecord:
        """Return the record of the step, without what it committed and its time on the host."""
        return StepRecord(
            index=index,
            start_s=start_s,
            prefill_ms=phase_ms.get("prefill", 0.0),
            draft_ms=phase_ms.get("draft", 0.0),
            tree_ms=phase_ms.get("tree", 0.0),
            verify_ms=phase_ms.get("verify", 0.0),
            accept_ms=phase_ms.get("accept", 0.0),
            host_ms=0.0,
            context_requests=self.reading,
            context_tokens=self.context_tokens,
            request_ids=[s.request.id for s in outcome.running],
            tree_nodes=outcome.tree_nodes,
            accepted=outcome.accepted,
            draft_len=self.draft_len,
            kv_used_bytes=kv_used_bytes,
        )


def bring(parts: list[Tensor]) -> Tensor:
    """Begin to copy everything that a step gives to the host, in one piece.

    On CUDA nothing waits: the result may be read once the stream has come to this point.
    """
    if not parts:
        return torch.empty(0, dtype=torch.long)
    given = torch.cat(parts)  # NOTE: a copy, because the next step overwrites what graphs give
    if not given.is_cuda:
        return given
    host = torch.empty(given.shape, dtype=given.dtype, pin_memory=True)
    return host.copy_(given, non_blocking=True)
