"""Attention over paged KV: of prompts being read, and of draft trees being verified.

Grouped-query attention folds the query heads of a group into the rows of their KV head, so that no
key is ever copied per head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tuner.engines.redrafter.kv_cache import KVCache
from tuner.engines.redrafter.llama import Attend, FusedAttend
from tuner.engines.redrafter.rows import Rows
from tuner.engines.redrafter.sequence import Sequence


@dataclass(frozen=True, slots=True)
class PromptAttention:
    """An `Attend` for one whole prompt: writes its keys and values, then attends."""

    cache: KVCache
    slots: Tensor  # [T] where each token's key and value go

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend for one layer; q [T, heads, dim], k and v [T, kv_heads, dim]."""
        self.cache.write(layer, self.slots, k, v)
        kept = self.cache.read(layer, self.slots.unsqueeze(0))
        keys, values = kept.repeat_interleave(self.cache.group, dim=3).transpose(2, 3)
        queries = q.transpose(0, 1).unsqueeze(0)
        out = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return out[0].transpose(0, 1)


@dataclass(frozen=True, slots=True)
class TreeAttention:
    """An `Attend` for B trees of N nodes, each node seeing its context and its ancestors."""

    cache: KVCache
    slots: Tensor  # [B * N] where each node's key and value go
    gather: Tensor | slice  # [B, S] slots of the context and the nodes; one run of slots if B = 1
    mask: Tensor | None  # [B, 1, group * N, S] additive; None: everything is seen

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend for one layer; q [B * N, heads, dim], k and v [B * N, kv_heads, dim]."""
        self.cache.write(layer, self.slots, k, v)
        keys, values = self.cache.read(layer, self.gather).transpose(2, 3)
        batch, kv_heads, _, dim = keys.shape
        folded = q.view(batch, -1, kv_heads, q.shape[1] // kv_heads, dim).permute(0, 2, 3, 1, 4)
        rows = folded.reshape(batch, kv_heads, -1, dim)
        out = F.scaled_dot_product_attention(rows, keys, values, attn_mask=self.mask)
        return out.view(folded.shape).permute(0, 3, 1, 2, 4).reshape(q.shape)


@dataclass(frozen=True, slots=True)
class PagedTreeAttention(FusedAttend):
    """As `TreeAttention`, in kernels that read pages and lengths on the device."""

    cache: KVCache
    new_slots: Tensor  # [B * N] where each node's key and value go
    slots: Tensor  # [places, capacity] slot of every position
    kv_len: Tensor  # [places] length of each context
    sees: Tensor  # [B, N, N] whether node i attends to node j

    def __call__(self, layer: int, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attend for one layer; heads are [B * N, heads + 2 * kv_heads, dim]."""
        from tuner.engines.redrafter.kernels.rotate_store import rotate_store
        from tuner.engines.redrafter.kernels.tree_attention import attend

        kept = self.cache.data[layer]
        q = rotate_store(heads, cos, sin, kept, self.new_slots)
        keys, values = kept
        return attend(q, keys, values, self.slots, self.kv_len, self.sees)


def prompt_attention(
    cache: KVCache, new_slots: Tensor, slots: Tensor, before: Tensor, whole: bool
) -> Attend:
    """Return the attention of a chunk of one prompt.

    Args:
        cache: keys and values, written for the chunk and read for everything.
        new_slots: [T] slot of each token of the chunk; 0 for padding.
        slots: [1, capacity] slot of every position.
        before: [1] positions before the chunk.
        whole: nothing is before it and it is not padded.
    """
    if whole and not cache.data.is_cuda:
        return PromptAttention(cache, new_slots)
    size = len(new_slots)
    chain = torch.ones(1, size, size, device=new_slots.device, dtype=torch.bool).tril()
    if cache.data.is_cuda:
        return PagedTreeAttention(cache, new_slots, slots, before, chain)
    mask = tree_mask(chain, before, slots.shape[1], cache.group, cache.dtype)
    return TreeAttention(cache, new_slots, slots, mask)


def tree_attention(cache: KVCache, rows: Rows, sees: Tensor, slots: Tensor, context: int) -> Attend:
    """Return the attention of trees that follow the contexts of the first B rows.

    Args:
        cache: keys and values, written for the nodes and read for everything.
        rows: the running requests; their `kv_len` is the length of each context.
        sees: [B, N, N] whether node i attends to node j.
        slots: [B, N] slot of each node.
        context: longest context to cover.
    """
    if cache.data.is_cuda:
        return PagedTreeAttention(cache, slots.flatten(), rows.slots, rows.kv_len, sees)
    batch, nodes = slots.shape
    span = context + nodes
    mask = None
    if nodes > 1 or batch > len(rows) or any(s.kv_len < context for s in rows.sequences):
        mask = tree_mask(sees, rows.kv_len[:batch], span, cache.group, cache.dtype)
    run = _one_run(rows.sequences[0], span) if batch == 1 else None
    return TreeAttention(cache, slots.flatten(), run or rows.slots[:batch, :span], mask)


def _one_run(sequence: Sequence, span: int) -> slice | None:
    """The first `span` slots of a sequence as a slice, when its blocks lie side by side."""
    blocks = sequence.blocks
    if span > len(sequence.slots) or blocks[-1] - blocks[0] != len(blocks) - 1:
        return None
    first = int(sequence.slots[0])
    return slice(first, first + span)


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
