"""FP8 checkpoints: e4m3 `weight` with one scale for all of it, for every output, or for blocks.

One scale is called `weight_scale`; scales of blocks `weight_scale_inv`, [out / block, in / block].
Scales of activations, where a checkpoint has them, are not used: ours are found for every token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tuner.engines.redrafter.quant.formats.layout import Layout, Weights
from tuner.engines.redrafter.quant.fp8 import E4M3, Fp8Linear
from tuner.errors import BadInput


class Fp8Layout(Layout):
    """`quant_method` fp8 and fbgemm_fp8."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.block = settings.get("weight_block_size")
        self.marker = "weight_scale_inv" if self.block else "weight_scale"

    def read(self, weights: Weights, name: str) -> Fp8Linear | Tensor:
        """Return the layer called `name`; one with scales of blocks as its bf16 weight."""
        scale = self.take(weights, name, self.marker).float()
        codes = self.take(weights, name, "weight")
        if codes.dtype != E4M3:
            raise BadInput("model", f"{name}.weight", f"is {codes.dtype}, not {E4M3}")
        if not self.block:
            return fp8_linear(codes, scale, weights.get(f"{name}.bias"))
        spread = scale.repeat_interleave(self.block[0], 0).repeat_interleave(self.block[1], 1)
        rows, columns = codes.shape
        return (codes.float() * spread[:rows, :columns]).bfloat16()


def fp8_linear(codes: Tensor, scale: Tensor, bias: Tensor | None) -> Fp8Linear:
    """Return a layer of e4m3 `codes` [out, in] with one scale, or one for every output."""
    rows = codes.shape[0]
    if scale.numel() not in (1, rows):
        raise BadInput("model", list(scale.shape), f"are no scales for {rows} outputs")
    per_row = scale.reshape(-1, 1).expand(rows, 1).contiguous()
    return Fp8Linear(codes.contiguous().view(torch.uint8), per_row, bias)
