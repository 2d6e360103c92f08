"""One generation step over the running rows: draft, merge, verify, accept.

Pure tensor work on tensors that stay where they are; nothing is read back. So the same code runs
eagerly and, on CUDA, is captured once per shape and replayed. What a step gave is one small tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.engines.redrafter.accept import accept, choose
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
        if len(self.chosen_from):
            node = accepted.path.unsqueeze(-1).expand(-1, -1, context.shape[-1])
            self.chosen_from[: shape.rows, : node.shape[1]] = context.gather(1, node)
        # The rows keep a context also without a draft: the next step may have one.
        told, source, target = self.rows.advance(
            accepted, tree.count, context if self.method else None
        )
        if self.beam_width > 1 and shape.draft_len > 0:  # a chain is already in place
            self.cache.move(source, target)
        return told

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
        slots, positions = self.rows.place_nodes(tree.depth, tree.count)
        attend = tree_attention(self.cache, self.rows, tree.sees, slots, shape.context)
        hidden, context = self.model(
            tree.tokens.flatten(), positions.flatten(), attend, self.context_layers
        )
        temperature = None
        if shape.sampled:
            temperature = self.rows.temperature[:batch].repeat_interleave(nodes)
        choice = choose(self.model.logits(hidden), temperature, self.generator)
        return choice.view(batch, nodes), context.view(batch, nodes, -1)
