"""compressed-tensors checkpoints: FP8 and INT8 with scales of outputs, INT4 packed in groups.

    float-quantized  `weight` e4m3 [out, in], `weight_scale` [out, 1] or [1]
    int-quantized    `weight` int8 [out, in], `weight_scale` [out, 1] or [1]
    pack-quantized   `weight_packed` int32 [out, in / 8], `weight_scale` [out, groups], and where
                     zero points are stored `weight_zero_point` int32 [out / 8, groups]

Packed codes count from 8: what stands for zero is 8 where no zero points are stored.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tuner.engines.redrafter.quant.formats.fp8 import fp8_linear
from tuner.engines.redrafter.quant.formats.layout import Layout, Weights, unsupported
from tuner.engines.redrafter.quant.fp8 import Fp8Linear
from tuner.engines.redrafter.quant.int4 import Int4Linear, unpack
from tuner.engines.redrafter.quant.int8 import Int8Linear
from tuner.errors import BadInput

_MIDDLE = 8


class FloatQuantized(Layout):
    """FP8."""

    marker = "weight_scale"

    def read(self, weights: Weights, name: str) -> Fp8Linear:
        """Return the layer called `name` with its codes as stored."""
        scale = self.take(weights, name, "weight_scale")
        return fp8_linear(
            self.take(weights, name, "weight"), scale.float(), weights.get(f"{name}.bias")
        )


class IntQuantized(Layout):
    """INT8."""

    marker = "weight_scale"

    def read(self, weights: Weights, name: str) -> Int8Linear:
        """Return the layer called `name` with its codes as stored."""
        codes = self.take(weights, name, "weight")
        if codes.dtype != torch.int8:
            raise BadInput("model", f"{name}.weight", f"is {codes.dtype}, not int8")
        scale = self.take(weights, name, "weight_scale").reshape(-1, 1)
        per_row = scale.expand(codes.shape[0], 1).contiguous()
        return Int8Linear(codes.contiguous(), per_row, weights.get(f"{name}.bias"))


class PackQuantized(Layout):
    """INT4."""

    marker = "weight_packed"

    def read(self, weights: Weights, name: str) -> Int4Linear:
        """Return the layer called `name` with its codes as stored."""
        if f"{name}.weight_g_idx" in weights:
            raise unsupported("actorder", "group", "a checkpoint without reordered inputs")
        packed = self.take(weights, name, "weight_packed")
        scale = self.take(weights, name, "weight_scale")
        zero = torch.full(scale.shape, _MIDDLE, dtype=torch.uint8)
        stored: Tensor | None = weights.get(f"{name}.weight_zero_point")
        if stored is not None:
            zero = unpack(stored.t()).t()[: scale.shape[0]].contiguous()
        if zero.shape != scale.shape:
            raise BadInput(
                "model", name, f"has zeros {list(zero.shape)} for scales {list(scale.shape)}"
            )
        return Int4Linear(packed.contiguous(), scale, zero, weights.get(f"{name}.bias"))


_LAYOUTS: dict[tuple[str, str, int], type[Layout]] = {
    ("float-quantized", "float", 8): FloatQuantized,
    ("int-quantized", "int", 8): IntQuantized,
    ("pack-quantized", "int", 4): PackQuantized,
}
_STRATEGIES = {8: ("tensor", "channel"), 4: ("channel", "group")}


def compressed_tensors_layout(settings: dict[str, Any]) -> Layout:
    """Return the layout that `settings` describe. Raises BadInput for one that is not read."""
    sparsity = (settings.get("sparsity_config") or {}).get("format", "dense")
    if sparsity != "dense":
        raise unsupported("sparsity_config.format", sparsity, "a checkpoint without sparsity")
    groups = list(settings.get("config_groups", {}).values())
    if len(groups) != 1:
        raise unsupported("config_groups", f"{len(groups)} groups", "a checkpoint with one")
    weights = groups[0].get("weights") or {}
    kind = groups[0].get("format") or settings.get("format")
    described = (str(kind), str(weights.get("type")), int(weights.get("num_bits", 0)))
    if described not in _LAYOUTS:
        known = "; ".join(f"{name} {of}{bits}" for name, of, bits in _LAYOUTS)
        raise unsupported("format", f"{described[0]} {described[1]}{described[2]}", known)
    strategies = _STRATEGIES[described[2]]
    if weights.get("strategy") not in strategies:
        raise unsupported("strategy", weights.get("strategy"), " or ".join(strategies))
    if described[2] == 8 and not weights.get("symmetric", True):
        raise unsupported("symmetric", False, "symmetric 8-bit weights")
    return _LAYOUTS[described]()
