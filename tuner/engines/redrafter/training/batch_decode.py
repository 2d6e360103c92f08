"""Continue many prompts at once, as fast as one device goes.

Built for tens of millions of tokens: a batch is so large that each step keeps the device busy
without graphs, and rows that have stopped are dropped from the cache every few steps. Prompts of
equal length need no attention mask; others work too, more slowly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.forward import causal_attention

COMPACT_EVERY = 16
PREFILL_TOKENS = 131_072


@dataclass(frozen=True, slots=True)
class Decoding:
    """How to continue: up to and including the first of `stop_token_ids`."""

    max_new_tokens: int
    stop_token_ids: frozenset[int]
    temperature: float = 0.0
    seed: int = 0


class BatchCache:
    """Keys and values of B rows, [B, kv_heads, room, dim] a layer; row b has `length[b]` slots."""

    def __init__(self, model: Llama, lengths: Tensor, room: int) -> None:
        config = model.config
        self.length = lengths
        self.uniform = bool((lengths == lengths[0]).all())
        self.longest = int(lengths.max())
        shape = (len(lengths), config.num_kv_heads, -(-room // 16) * 16, config.head_dim)
        like = model.norm.weight
        self.keys = [like.new_zeros(shape) for _ in range(config.num_layers)]
        self.values = [like.new_zeros(shape) for _ in range(config.num_layers)]
        self._bias: Tensor | None = None

    def prefill(self, rows: slice, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store and attend over the prompts of `rows`, flat [rows * length, heads, dim]."""
        count = rows.stop - rows.start
        for store, new in ((self.keys, k), (self.values, v)):
            new = new.unflatten(0, (count, -1)).transpose(1, 2)
            store[layer][rows, :, : new.shape[2]] = new
        return causal_attention(q, k, v, count)

    def begin_step(self) -> None:
        """Make room for one more token in every row."""
        self.length = self.length + 1
        self.longest += 1
        if not self.uniform:
            used = -(-self.longest // 16) * 16
            slots = torch.arange(used, device=self.length.device)
            hidden = slots >= self.length.view(-1, 1, 1, 1)
            self._bias = torch.zeros_like(hidden, dtype=self.keys[0].dtype)
            self._bias.masked_fill_(hidden, float("-inf"))

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store one token a row and attend over the row."""
        keys, values = self.keys[layer], self.values[layer]
        if self._bias is None:
            used = self.longest
            keys[:, :, used - 1], values[:, :, used - 1] = k, v
        else:
            used = self._bias.shape[-1]
            rows = torch.arange(len(k), device=k.device)
            keys[rows, :, self.length - 1], values[rows, :, self.length - 1] = k, v
        # Query heads that share a key head become its rows: no copies of keys, no causal mask.
        grouped = q.view(len(q), keys.shape[1], -1, q.shape[-1])
        bias = None if self._bias is None else self._bias.expand(*grouped.shape[:3], -1)
        out = F.scaled_dot_product_attention(
            grouped, keys[:, :, :used], values[:, :, :used], attn_mask=bias
        )
        return out.reshape(q.shape)

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but `rows`."""
        self.length = self.length[rows]
        for store in (self.keys, self.values):
            for layer, tensor in enumerate(store):
                kept = tensor.new_zeros(len(rows), *tensor.shape[1:])
                kept[:, :, : self.longest] = tensor[:, :, : self.longest][rows]
                store[layer] = kept


@torch.no_grad()
def decode(model: Llama, prompts: Sequence[Sequence[int]], how: Decoding) -> Tensor:
    """Return the continuations [B, max_new_tokens] int32, -1 after the end (the stop token)."""
    device = model.norm.weight.device
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    cache = BatchCache(model, lengths.to(device), int(lengths.max()) + how.max_new_tokens)
    logits = _prefill(model, prompts, cache)
    picker = _Picker(how, device)
    stops = torch.tensor(sorted(how.stop_token_ids), device=device)
    out = torch.full((len(prompts), how.max_new_tokens), -1, dtype=torch.int32, device=device)
    rows = torch.arange(len(prompts), device=device)
    stopped = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    head = model.lm_head.weight.float()
    for step in range(how.max_new_tokens):
        token = picker(logits)
        out[rows, step] = token.int()
        stopped |= torch.isin(token, stops)
        if step % COMPACT_EVERY == COMPACT_EVERY - 1:
            alive = (~stopped).nonzero().flatten()
            if len(alive) == 0:
                break
            if len(alive) < 0.93 * len(rows):
                rows, token, stopped = rows[alive], token[alive], stopped[alive]
                cache.keep(alive)
        cache.begin_step()
        hidden, _ = model(token, cache.length - 1, cache.attend)
        logits = F.linear(hidden.float(), head)
    is_stop = torch.isin(out, stops)
    return out.masked_fill(is_stop.cumsum(1) - is_stop.long() > 0, -1)


class _Picker:
    """The next token: the likeliest at temperature 0, else a sample (Gumbel-max)."""

    def __init__(self, how: Decoding, device: torch.device) -> None:
        self.temperature = how.temperature
        self.generator = torch.Generator(device).manual_seed(how.seed)

    def __call__(self, logits: Tensor) -> Tensor:
        if self.temperature > 0:
            noise = torch.empty_like(logits).exponential_(generator=self.generator)
            logits = logits / self.temperature - noise.log_()
        return logits.argmax(-1)


def _prefill(model: Llama, prompts: Sequence[Sequence[int]], cache: BatchCache) -> Tensor:
    """Read the prompts in parts of bounded size; return the logits after each, [B, vocab]."""
    device = model.norm.weight.device
    longest = cache.longest
    padded = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        padded[row, : len(prompt)] = torch.tensor(prompt)
    last = []
    step = max(1, PREFILL_TOKENS // longest)
    for start in range(0, len(prompts), step):
        rows = slice(start, min(start + step, len(prompts)))
        tokens = padded[rows].to(device)
        positions = torch.arange(longest, device=device).repeat(len(tokens))

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor, rows: slice = rows) -> Tensor:
            return cache.prefill(rows, layer, q, k, v)

        hidden, _ = model(tokens.flatten(), positions, attend)
        ends = cache.length[rows] - 1
        hidden = hidden.view(*tokens.shape, -1)[torch.arange(len(tokens), device=device), ends]
        last.append(F.linear(hidden.float(), model.lm_head.weight.float()))
    return torch.cat(last)
