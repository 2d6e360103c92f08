"""Channels of the base model that can be rescaled without changing what it computes.

A linear layer may have its input divided by `s`, channel by channel, when its columns are
multiplied by `s`. The division costs nothing where it disappears into what feeds the layer:

    input_layernorm -> qkv_proj             post_attention_layernorm -> gate_up_proj
    rows of v in qkv_proj -> o_proj         rows of up in gate_up_proj -> down_proj

Query heads that share a value head share its scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuner.engines.redrafter.llama import DecoderLayer, Llama, RMSNorm


@dataclass(frozen=True, slots=True)
class Fold:
    """One place: a linear layer, by name, and the norm or the rows of a layer that feed it."""

    name: str
    linear: nn.Linear
    norm: RMSNorm | None = None
    rows_of: nn.Linear | None = None
    first_row: int = 0
    heads: tuple[int, int] = (1, 1)  # value heads, query heads of each

    def shared(self, statistic: Tensor) -> Tensor:
        """Give channels of the same source the largest `statistic` [in] among them."""
        return self._spread(self._by_source(statistic).amax(dim=1))

    def apply(self, scale: Tensor) -> None:
        """Divide what feeds the layer by `scale` [in] and multiply its columns by it.

        The layer's weight becomes fp32. A norm's is rounded to bf16, in which it will be kept, and
        the columns take what it lost.
        """
        scale = scale.to(self.linear.weight.device, torch.float32)
        if self.norm is not None:
            before = self.norm.weight.float()
            after = (before / scale).bfloat16().float()
            self.norm.weight = _fixed(after.to(self.norm.weight.dtype))
            scale = torch.where(after == 0, scale, before / after)
        if self.rows_of is not None:
            source = self._by_source(scale)[:, 0].flatten()
            _divide_rows(self.rows_of, self.first_row, source)
        self.linear.weight = _fixed(self.linear.weight.float() * scale)

    def _by_source(self, channels: Tensor) -> Tensor:
        """View channels [in] as [value heads, query heads of each, dim]."""
        return channels.view(*self.heads, -1)

    def _spread(self, by_source: Tensor) -> Tensor:
        return by_source.unsqueeze(1).expand(*self.heads, -1).flatten()


def folds(model: Llama, index: int) -> list[Fold]:
    """Return the folds of layer `index`, in the order in which they are to be applied."""
    layer, name = model.layers[index], f"layers.{index}"
    assert isinstance(layer, DecoderLayer)
    attention, mlp = layer.self_attn, layer.mlp
    values = (attention.heads + attention.kv_heads) * attention.head_dim
    ups = mlp.gate_up_proj.out_features // 2
    heads = (attention.kv_heads, attention.heads // attention.kv_heads)
    return [
        Fold(f"{name}.self_attn.qkv_proj", attention.qkv_proj, norm=layer.input_layernorm),
        Fold(
            f"{name}.self_attn.o_proj",
            attention.o_proj,
            rows_of=attention.qkv_proj,
            first_row=values,
            heads=heads,
        ),
        Fold(f"{name}.mlp.gate_up_proj", mlp.gate_up_proj, norm=layer.post_attention_layernorm),
        Fold(f"{name}.mlp.down_proj", mlp.down_proj, rows_of=mlp.gate_up_proj, first_row=ups),
    ]


def _divide_rows(linear: nn.Linear, first: int, scale: Tensor) -> None:
    weight = linear.weight.float()
    weight[first:] /= scale.unsqueeze(1)
    linear.weight = _fixed(weight)
    if linear.bias is not None:
        bias = linear.bias.float()
        bias[first:] /= scale
        linear.bias = _fixed(bias)


def _fixed(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)
