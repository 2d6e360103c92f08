"""One generation step over the running rows: draft, merge, verify, accept.

Pure tensor work on tensors that stay where they are; nothing is read back. So the same code runs
eagerly and, on CUDA, is captured once per shape and replayed. What a step gave is one small tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.engines.redrafter.accept import Accepted, accept, choose
from tuner.engines.redrafter.attention import tree_attention
from tuner.engines.redrafter.drafters.base import DraftMethod
from tuner.engines.redrafter.kv_cache import KVCache
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.rows import Rows
from tuner.engines.redrafter.tree import DraftTree, build_tree, root_only

BeginPhase = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StepShape:
    """The sizes of a generation step; steps of equal shape do the same work."""

    rows: int
    context: int  # longest context that attention covers
    nodes: int | None  # room of every tree; None: what the largest tree needs
    sampled: bool  # some row has a temperature
    draft_len: int


class Generation:
    """Steps of one beam width and up to `longest_draft` drafted tokens on `rows`."""

    def __init__(
        self,
        model: Llama,
        method: DraftMethod | None,
        cache: KVCache,
        rows: Rows,
        beam_width: int,
        longest_draft: int,
    ) -> None:
        self.model, self.method, self.cache, self.rows = model, method, cache, rows
        self.beam_width = beam_width
        self.context_layers = method.context_layers if method else ()
        # What a method that drafts on the host proposed; what one that looks back is to be told.
        self.beams = rows.true_token.new_zeros(rows.places, beam_width, 1 + longest_draft)
        remembered = rows.places if method and method.context_window else 0
        sizes = remembered, 1 + longest_draft, rows.context.shape[1]
        self.chosen_from = rows.context.new_zeros(sizes)
        self.generator = torch.Generator(cache.data.device)

    def run(self, shape: StepShape, begin: BeginPhase) -> Tensor:
        """Run one step over the first `shape.rows` rows, calling `begin` as each phase starts.

        Returns:
            [rows, 2 + L] integers, L = 1 + draft_len of the shape: accepted drafted tokens, tree
            nodes, and the accepted tokens followed by the extra one; leftovers after that.
        """
        tree = self._draft(shape, begin)
        choice, context = self._verify(tree, shape)
        begin("accept")
        accepted = accept(tree, choice)
        self._keep(accepted, shape.rows)
        self._advance(accepted, context, shape.rows)
        counts = torch.stack((accepted.length, tree.count), dim=1)
        return torch.cat((counts, accepted.tokens), dim=1)

    def _draft(self, shape: StepShape, begin: BeginPhase) -> DraftTree:
        """Return the trees to verify, in the phase that verifies them."""
        true_token = self.rows.true_token[: shape.rows]
        if shape.draft_len == 0:
            begin("verify")
            return root_only(true_token)
        assert self.method is not None, "draft_len > 0 needs a drafter"
        beams = self.beams[: shape.rows, :, : 1 + shape.draft_len]
        if self.method.graph_safe:
            begin("draft")
            beams = self.method.propose(
                self.rows.place[: shape.rows],
                true_token,
                self.rows.context[: shape.rows],
                self.beam_width,
                shape.draft_len,
            )
        begin("tree")
        tree = build_tree(beams, shape.nodes)
        begin("verify")
        return tree

    def _verify(self, tree: DraftTree, shape: StepShape) -> tuple[Tensor, Tensor]:
        """Return the base model's choice [B, N] after every node and the context [B, N, C]."""
        batch, nodes = tree.tokens.shape
        kv_len = self.rows.kv_len[:batch].unsqueeze(1)
        node = torch.arange(nodes, device=kv_len.device)
        slots = self.rows.slots[:batch].gather(1, kv_len + node)
        slots = slots.where(node < tree.count.unsqueeze(1), 0)
        positions = kv_len + tree.depth
        attend = tree_attention(self.cache, self.rows, tree.sees, slots, shape.context)
        hidden, context = self.model(
            tree.tokens.flatten(), positions.flatten(), attend, self.context_layers
        )
        temperature = None
        if shape.sampled:
            temperature = self.rows.temperature[:batch].repeat_interleave(nodes)
        choice = choose(self.model.logits(hidden), temperature, self.generator)
        return choice.view(batch, nodes), context.view(batch, nodes, -1)

    def _keep(self, accepted: Accepted, batch: int) -> None:
        """Move the accepted nodes' keys and values to the end of their context."""
        length = accepted.path.shape[1]
        if self.beam_width == 1 or length == 1:
            return  # a chain is already in place
        kv_len, slots = self.rows.kv_len[:batch].unsqueeze(1), self.rows.slots[:batch]
        step = torch.arange(length, device=kv_len.device)
        kept = step <= accepted.length.unsqueeze(1)
        # NOTE: leftovers go from slot 0 to slot 0, nobody's, so that no target is named twice.
        source = slots.gather(1, kv_len + accepted.path).where(kept, 0)
        target = slots.gather(1, kv_len + step).where(kept, 0)
        self.cache.move(source.flatten(), target.flatten())

    def _advance(self, accepted: Accepted, context: Tensor, batch: int) -> None:
        """Set the true token, context and length of every row for the next step."""
        last = accepted.length.unsqueeze(1)
        rows = self.rows
        rows.true_token[:batch] = accepted.tokens.gather(1, last).squeeze(1)
        rows.kv_len[:batch] += accepted.length + 1
        if self.method is not None:  # also without a draft: the next step may have one
            node = accepted.path.gather(1, last).unsqueeze(-1).expand(-1, -1, context.shape[-1])
            rows.context[:batch] = context.gather(1, node).squeeze(1)
        if len(self.chosen_from):
            node = accepted.path.unsqueeze(-1).expand(-1, -1, context.shape[-1])
            self.chosen_from[:batch, : node.shape[1]] = context.gather(1, node)
