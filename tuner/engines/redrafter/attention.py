"""Attention of one step: prompts being read and draft trees being verified, over paged KV.

The flat tokens of a step are the prompts first, then the trees, padded to N nodes each. Either part
may be empty. Grouped-query attention folds the query heads of a group into the rows of their KV
head, so that no key is ever copied per head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tuner.engines.redrafter.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class TreeSpan:
    """The trees of a step: B sequences of N nodes, each seeing its context and its ancestors."""

    batch: int
    nodes: int
    gather: Tensor  # [B, S] slots of the context followed by the nodes
    run: slice | None  # the same as a slice, when there is one sequence in one run of slots
    mask: Tensor | None  # [B, 1, group * N, S] additive; None: everything is seen


@dataclass(frozen=True, slots=True)
class StepAttention:
    """An `Attend` for `Llama.forward`: writes the new keys and values, then attends."""

    cache: KVCache
    slots: Tensor  # [T] where each token's key and value go
    prompts: list[tuple[int, int]]  # spans of flat tokens, one a prompt
    trees: TreeSpan | None

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend for one layer; q [T, heads, dim], k and v [T, kv_heads, dim]."""
        self.cache.write(layer, self.slots, k, v)
        parts = [_causal(q[a:b], k[a:b], v[a:b]) for a, b in self.prompts]
        if self.trees:
            rows = self.trees.batch * self.trees.nodes
            parts.append(self._tree(layer, q[q.shape[0] - rows :], self.trees))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _tree(self, layer: int, q: Tensor, trees: TreeSpan) -> Tensor:
        store = self.cache.data[layer]
        if trees.run is not None:
            keys, values = store[:, trees.run].unsqueeze(1).transpose(2, 3)
        else:
            shape = (2, *trees.gather.shape, *store.shape[2:])
            picked = store.index_select(1, trees.gather.flatten()).view(shape)
            keys, values = picked.transpose(2, 3)
        kv_heads, dim = keys.shape[1], keys.shape[3]
        folded = q.view(trees.batch, trees.nodes, kv_heads, -1, dim).permute(0, 2, 3, 1, 4)
        rows = folded.reshape(trees.batch, kv_heads, -1, dim)
        out = F.scaled_dot_product_attention(rows, keys, values, attn_mask=trees.mask)
        return out.view(folded.shape).permute(0, 3, 1, 2, 4).reshape(q.shape)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Plain causal attention of one prompt, [P, heads, dim]."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1)


def tree_mask(
    sees: Tensor, context_len: Tensor, span: int, group: int, dtype: torch.dtype
) -> Tensor:
    """Build the additive mask [B, 1, group * N, span] of trees [B, N, N] after their contexts.

    Column c of sequence b is context while c < context_len[b], then its nodes, then nothing.
    """
    nodes = sees.shape[1]
    column = torch.arange(span, device=sees.device) - context_len.unsqueeze(1)  # [B, span]
    inside = ((column >= 0) & (column < nodes)).unsqueeze(1)
    node = column.clamp(0, nodes - 1).unsqueeze(1).expand(-1, nodes, -1)
    visible = (column < 0).unsqueeze(1) | (inside & sees.gather(2, node))
    mask = torch.zeros(visible.shape, device=sees.device, dtype=dtype)
    mask.masked_fill_(~visible, float("-inf"))
    return mask.repeat(1, group, 1).unsqueeze(1)
