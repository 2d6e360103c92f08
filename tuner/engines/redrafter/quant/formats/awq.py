"""AWQ: `qweight` int32 [in, out / 8], `qzeros` int32 [groups, out / 8], `scales` [groups, out].

Codes of eight neighbouring outputs share an int32 in the order 0, 2, 4, 6, 1, 3, 5, 7, the first in
its lowest bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tuner.engines.redrafter.quant.formats.layout import Layout, Weights, unsupported
from tuner.engines.redrafter.quant.int4 import Int4Linear, pack, unpack
from tuner.errors import BadInput

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_INVERSE = tuple(ORDER.index(output) for output in range(8))


class AwqLayout(Layout):
    """4 bits, groups of inputs, the "gemm" packing."""

    marker = "qweight"

    def __init__(self, settings: dict[str, Any]) -> None:
        if settings.get("bits", 4) != 4:
            raise unsupported("bits", settings["bits"], "4")
        version = str(settings.get("version", "gemm")).lower()
        if version != "gemm":
            raise unsupported("version", version, "gemm")

    def read(self, weights: Weights, name: str) -> Int4Linear:
        """Return the layer called `name` with its codes, zeros and scales as stored."""
        codes = _outputs(self.take(weights, name, "qweight")).t().contiguous()
        scale = self.take(weights, name, "scales").t().contiguous()
        zero = _outputs(self.take(weights, name, "qzeros")).t().contiguous()
        if zero.shape != scale.shape or codes.shape[1] % scale.shape[1]:
            raise BadInput(
                "model",
                name,
                f"its scales {list(scale.shape)}, zeros {list(zero.shape)} and codes "
                f"{list(codes.shape)} do not fit each other",
            )
        return Int4Linear(pack(codes), scale, zero, weights.get(f"{name}.bias"))


def _outputs(packed: Tensor) -> Tensor:
    """Return uint8 codes [rows, out] of int32 [rows, out / 8]."""
    codes = unpack(packed).unflatten(1, (-1, 8))
    return codes[..., torch.tensor(_INVERSE)].flatten(1)
