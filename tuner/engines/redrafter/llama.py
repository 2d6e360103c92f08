"""The base model: a Llama-architecture decoder over a flat list of tokens.

The forward pass knows nothing of batches, caches or trees. It gets tokens and positions, and an
`attend` callable that owns all of that: paged attention while serving, plain causal attention in
training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.dense import Embedding, Linear, rows_of, summands, takes_kernels
from tuner.engines.redrafter.rope import rotate, rotation_table

TAP_EPS = torch.finfo(torch.float32).eps  # torch's own where none is given
PlainAttend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [T, heads, dim], k [T, kv_heads, dim], v) -> [T, heads, dim]; q and k are rotated."""


class FusedAttend(ABC):
    """An attention that rotates queries and keys itself, as it keeps keys and values."""

    @abstractmethod
    def __call__(self, layer: int, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attend for one layer.

        Args:
            layer: its index.
            heads: [T, heads + 2 * kv_heads, dim] queries, keys and values.
            cos: [T, 1, dim].
            sin: [T, 1, dim], signed.

        Returns:
            [T, heads, dim].
        """


Attend = PlainAttend | FusedAttend


class RMSNorm(nn.Module):
    """Root-mean-square norm; statistics in fp32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)

    def after(self, x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Return x + delta and its norm; delta is [T, size], or `summands` of it."""
        return _sum_and_norm(x, delta, self.weight, self.eps)


def _sum_and_norm(
    x: Tensor, delta: Tensor, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    if takes_kernels(x):
        from tuner.engines.redrafter.kernels.add_norm import add_norm

        return add_norm(x, delta, weight, eps)
    x = x + delta
    return x, F.rms_norm(x, x.shape[-1:], weight, eps)


class Attention(nn.Module):
    """Grouped-query attention with one fused projection."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.heads = config.num_heads
        self.kv_heads = config.num_kv_heads
        self.head_dim = config.head_dim
        width = (self.heads + 2 * self.kv_heads) * self.head_dim
        self.qkv_proj = Linear(config.hidden_size, width, bias=config.qkv_bias)
        self.o_proj = Linear(
            self.heads * self.head_dim, config.hidden_size, bias=config.output_bias
        )

    def forward(self, x: Tensor, layer: int, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Attend over whatever `attend` holds; x is [T, hidden]. Returns what `summands` does."""
        heads = self.qkv_proj(x).view(x.shape[0], -1, self.head_dim)
        if isinstance(attend, FusedAttend):
            out = attend(layer, heads, cos, sin)
        else:
            rotated = rotate(heads[:, : self.heads + self.kv_heads], cos, sin)
            q, k = rotated[:, : self.heads], rotated[:, self.heads :]
            out = attend(layer, q, k, heads[:, self.heads + self.kv_heads :])
        return summands(self.o_proj, out.reshape(x.shape[0], -1))


class SwiGLU(nn.Module):
    """Gated feed-forward with gate and up fused."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_up_proj = Linear(
            config.hidden_size, 2 * config.intermediate_size, bias=config.mlp_bias
        )
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map [T, hidden] to what `summands` returns of [T, hidden]."""
        gated = getattr(self.gate_up_proj, "gated", None)
        inner: Tensor | None = gated(x) if gated else None
        if inner is None:
            inner = silu_mul(self.gate_up_proj(x))
        return summands(self.down_proj, inner)


def silu_mul(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up of [T, 2 * size]: [T, size]."""
    if gate_up.is_cuda and not gate_up.requires_grad:  # the kernel has no backward
        from tuner.engines.redrafter.kernels.silu_mul import silu_mul as silu_mul_on_cuda

        return silu_mul_on_cuda(gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


class DecoderLayer(nn.Module):
    """Pre-norm attention and feed-forward, both residual."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = SwiGLU(config)

    def forward(
        self, x: Tensor, delta: Tensor, layer: int, cos: Tensor, sin: Tensor, attend: Attend
    ) -> tuple[Tensor, Tensor]:
        """Take the residual stream as a sum of two [T, hidden] and return it so."""
        x, normed = self.input_layernorm.after(x, delta)
        delta = self.self_attn(normed, layer, cos, sin, attend)
        x, normed = self.post_attention_layernorm.after(x, delta)
        return x, self.mlp(normed)


class Llama(nn.Module):
    """Decoder and LM head. `forward` gives hidden states; `logits` is asked for where needed."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.rotation: Tensor | None = None

    def prepare_positions(self, positions: int, device: torch.device, dtype: torch.dtype) -> None:
        """Have a rotary table of at least `positions` positions; one that is there stays."""
        held = self.rotation
        if held is not None and held.shape[0] >= positions and held.dtype == dtype:
            return
        table = rotation_table(self.config.rope, self.config.head_dim, positions)
        self.rotation = table.to(device=device, dtype=dtype)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        attend: Attend,
        context_layers: tuple[int, ...] = (),
    ) -> tuple[Tensor, Tensor]:
        """Run flat `tokens` [T] at `positions` [T].

        Returns:
            The post-norm hidden states [T, hidden] that the LM head reads, and the drafter's
            context [T, (1 + len(context_layers)) * hidden]: those hidden states, preceded by the
            residual stream after each layer of `context_layers` (counted from 1), normalised.
        """
        assert self.rotation is not None, "prepare_positions comes first"
        turns = rows_of(self.rotation.flatten(1), positions)
        cos, sin = turns.view(-1, 2, 1, self.config.head_dim).unbind(1)
        x = self.embed_tokens(tokens).to(self.norm.weight.dtype)
        delta = torch.zeros_like(x)
        tapped = []
        for index, layer in enumerate(self.layers):
            x, delta = layer(x, delta, index, cos, sin, attend)
            if index + 1 in context_layers:
                tapped.append(_sum_and_norm(x, delta, None, TAP_EPS)[1])
        _, hidden = self.norm.after(x, delta)
        return hidden, torch.cat((*tapped, hidden), dim=-1) if tapped else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [T, vocab] of post-norm hidden states [T, hidden]."""
        return self.lm_head(hidden)
