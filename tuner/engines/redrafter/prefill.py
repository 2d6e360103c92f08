"""Reading prompts: the keys and values of a prompt, a chunk at a time, and its first token.

A chunk is a chain of tokens after what was read before, so it is attended to as a tree that happens
to have one path. On CUDA chunks are padded to a few sizes and captured as graphs; elsewhere a
prompt is read whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.engines.redrafter.accept import choose
from tuner.engines.redrafter.attention import prompt_attention
from tuner.engines.redrafter.generation import BeginPhase
from tuner.engines.redrafter.kv_cache import KVCache
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.sequence import Sequence

PADDED_SIZES = (16, 64, 256)


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """The sizes of one chunk; chunks of equal shape do the same work."""

    tokens: int
    whole: bool  # nothing was read before it, and it is not padded
    sampled: bool


class Prefill:
    """Reads one chunk of one prompt, from inputs that stay where they are."""

    def __init__(
        self,
        model: Llama,
        cache: KVCache,
        context_layers: tuple[int, ...],
        capacity: int,
        generator: torch.Generator,
    ) -> None:
        device = cache.data.device
        self.model, self.cache, self.context_layers = model, cache, context_layers
        self.generator = generator
        self.tokens = torch.zeros(max(capacity, PADDED_SIZES[-1]), device=device, dtype=torch.long)
        self.span = torch.zeros(2, device=device, dtype=torch.long)  # tokens before, tokens here
        # NOTE: attention looks up the slots of the padding too, past the longest prompt.
        room = capacity + PADDED_SIZES[-1]
        self.slots = torch.zeros(1, room, device=device, dtype=torch.long)
        self.temperature = torch.zeros(1, device=device)

    def place(self, sequence: Sequence, count: int) -> None:
        """Set the inputs for the next `count` tokens of a prompt."""
        chunk = sequence.request.prompt_token_ids[sequence.read : sequence.read + count]
        device = self.tokens.device
        self.tokens[:count] = torch.tensor(chunk, device=device)
        self.span.copy_(torch.tensor([sequence.read, count], device=device))
        self.slots[0, : len(sequence.slots)] = sequence.slots
        self.temperature.fill_(sequence.request.temperature)

    def run(self, shape: ChunkShape, begin: BeginPhase) -> tuple[Tensor, Tensor]:
        """Read the chunk in place; return the token after it [1] and its contexts [T, C]."""
        begin("prefill")
        before, count = self.span[:1], self.span[1:]
        index = torch.arange(shape.tokens, device=before.device)
        positions = before + index.minimum(count - 1)  # padding repeats the last one
        slots = self.slots[0, positions].where(index < count, 0)
        attend = prompt_attention(self.cache, slots, self.slots, before, shape.whole)
        tokens = self.tokens[: shape.tokens]
        hidden, context = self.model(tokens, positions, attend, self.context_layers)
        last = count - 1
        temperature = self.temperature if shape.sampled else None
        choice = choose(self.model.logits(hidden[last]), temperature, self.generator)
        return choice, context


def padded_size(tokens: int) -> int:
    """Return the size of the chunk that takes `tokens`, or as many of them as fit into one."""
    return next((size for size in PADDED_SIZES if size >= tokens), PADDED_SIZES[-1])
