"""The running requests, one row each, in tensors that never move.

Row r of every tensor belongs to `sequences[r]`. Rows past the last sequence are idle: they hold an
empty context in slot 0, which is nobody's, so that a step may run over more rows than there are
requests. The addresses never change, so that a captured graph can read and write them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tuner.engines.redrafter.accept import Accepted
from tuner.engines.redrafter.sequence import Sequence


def positions_of(max_seq_len: int, beam_width: int, draft_len: int) -> int:
    """Return the positions that a row may reach: the longest sequence with a tree behind it.

    NOTE: a step that is launched ahead may begin up to `draft_len` positions past the end.
    """
    return max_seq_len + draft_len + 1 + beam_width * draft_len


class Rows:
    """`places` rows of up to `capacity` positions."""

    def __init__(
        self,
        places: int,
        capacity: int,
        context_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(shape, device=device, dtype=dtype)

        self.places, self.capacity = places, capacity
        self.sequences: list[Sequence] = []
        self.true_token = zeros(places)  # chosen by the base model, not yet in the cache
        self.context = zeros(places, context_size, dtype=dtype)  # hidden state it was chosen from
        self.kv_len = zeros(places)  # positions in the cache
        self.slots = zeros(places, capacity)  # slot of every position
        self.temperature = zeros(places, dtype=torch.float32)
        self.place = zeros(places)  # where the draft method keeps it; 0 is nobody's

    def __len__(self) -> int:
        return len(self.sequences)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return everything that a row owns on the device."""
        return (
            self.true_token,
            self.context,
            self.kv_len,
            self.slots,
            self.temperature,
            self.place,
        )

    def join(self, sequences: list[Sequence], true_token: Tensor, context: Tensor) -> None:
        """Give the next rows to `sequences`, whose prompts are in the cache."""
        first = len(self)
        self.sequences += sequences
        taken = slice(first, len(self))
        self.true_token[taken] = true_token
        self.context[taken] = context
        self.kv_len[taken] = self._to_device([s.kv_len for s in sequences])
        self.temperature[taken] = self._to_device([s.request.temperature for s in sequences])
        self.place[taken] = self._to_device([s.place for s in sequences])
        for row, sequence in enumerate(sequences, first):
            self.slots[row, : len(sequence.slots)] = sequence.slots
            self.slots[row, len(sequence.slots) :] = 0

    def place_nodes(self, depth: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """Return the slot, 0 for unused nodes, and the position of every node of B trees.

        Args:
            depth: [B, N] distance of every node from the root of its tree.
            count: [B] nodes in use.
        """
        if depth.is_cuda:
            from tuner.engines.redrafter.kernels.place_nodes import place_nodes

            return place_nodes(self.slots, self.kv_len, depth, count)
        batch, nodes = depth.shape
        kv_len = self.kv_len[:batch].unsqueeze(1)
        node = torch.arange(nodes, device=depth.device)
        slots = self.slots[:batch].gather(1, kv_len + node)
        return slots.where(node < count.unsqueeze(1), 0), kv_len + depth

    def advance(
        self, accepted: Accepted, count: Tensor, context: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Set the true token, length and context of the first B rows for the next step.

        Args:
            accepted: what was accepted of B trees.
            count: [B] their nodes.
            context: [B, N, C] of every node; None: the rows keep theirs.

        Returns:
            [B, 2 + L] accepted drafted tokens, tree nodes, and the accepted tokens followed by the
            extra one; and the slots [B, L] that the keys and values of the accepted path lie in,
            and those that they are to go to.
        """
        if count.is_cuda:
            from tuner.engines.redrafter.kernels.advance_rows import advance_rows

            return advance_rows(self, accepted, count, context)
        batch, length = accepted.path.shape
        last = accepted.length.unsqueeze(1)
        slots, kv_len = self.slots[:batch], self.kv_len[:batch].unsqueeze(1)
        step = torch.arange(length, device=count.device)
        kept = step <= last
        # NOTE: leftovers go from slot 0 to slot 0, nobody's, so that no target is named twice.
        source = slots.gather(1, kv_len + accepted.path).where(kept, 0)
        target = slots.gather(1, kv_len + step).where(kept, 0)
        self.true_token[:batch] = accepted.tokens.gather(1, last).squeeze(1)
        self.kv_len[:batch] += accepted.length + 1
        if context is not None:
            node = accepted.path.gather(1, last).unsqueeze(-1).expand(-1, -1, context.shape[-1])
            self.context[:batch] = context.gather(1, node).squeeze(1)
        told = torch.cat((last, count.unsqueeze(1), accepted.tokens), dim=1)
        return told, source, target

    def leave(self) -> list[Sequence]:
        """Take the finished sequences out and close the gaps."""
        done = [s for s in self.sequences if s.finish_reason]
        if done:
            stay = [row for row, s in enumerate(self.sequences) if not s.finish_reason]
            picked = self._to_device(stay).long()
            before, self.sequences = len(self), [self.sequences[row] for row in stay]
            for tensor in self.tensors():
                tensor[: len(stay)] = tensor[picked]
                tensor[len(stay) : before] = 0
        return done

    def clear(self) -> None:
        """Make every row idle."""
        self.sequences = []
        for tensor in self.tensors():
            tensor.zero_()

    def _to_device(self, values: list[int] | list[float]) -> Tensor:
        return torch.tensor(values, device=self.kv_len.device)
