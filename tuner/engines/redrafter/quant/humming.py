"""Products of humming-kernels, compiled for each shape of layer on first use. CUDA only.

FP8 and INT4 weights meet bf16 activations, INT8 weights meet int8 activations with a scale for
every token; all numbers of rows share one copy of the weights. The library is optional, and does
not have every shape of layer.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor

from tuner.engines.redrafter.quant.fp8 import Fp8Linear
from tuner.engines.redrafter.quant.int4 import Int4Linear, pack
from tuner.engines.redrafter.quant.int8 import Int8Linear
from tuner.engines.redrafter.quant.layer import DeviceOnly, QuantizedLinear
from tuner.errors import EngineFailure

_TOLERANCE = 0.05  # of the output's size; rounding gives a hundredth, a wrong layout gives 1
_CHECKED_ROWS = (1, 17)
_TILE = 64


def installed() -> bool:
    """Whether humming-kernels can be imported."""
    return importlib.util.find_spec("humming") is not None


def multiplies(linear: QuantizedLinear) -> bool:
    """Whether humming-kernels is here and its tiles divide the layer."""
    return installed() and linear.in_features % _TILE == 0 and linear.out_features % _TILE == 0


class HummingLinear(DeviceOnly):
    """A quantized layer in humming's own order of weights. Raises EngineFailure if it has none."""

    def __init__(self, linear: QuantizedLinear) -> None:
        super().__init__()
        weights, activations = _configs(linear)
        self.kernel = f"humming, {activations['dtype'] if activations else 'bf16'} activations"
        try:
            self.layer: Any = _layer(linear, weights, activations)
            self._check(linear)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, AssertionError, ValueError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise EngineFailure(f"{_cannot(linear)}: {reason}") from error

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out] in bf16."""
        return self.layer(x.flatten(0, -2)).view(*x.shape[:-1], -1)

    def _check(self, linear: QuantizedLinear) -> None:
        """Compile, and compare with the weights that the codes stand for."""
        weight = linear.dequantized()
        for rows in _CHECKED_ROWS:
            x = torch.randn(rows, linear.in_features, device=weight.device).bfloat16()
            expected = linear.add_bias(x.float() @ weight.t())
            error, size = (self(x).float() - expected).norm(), expected.norm()
            if not float(error) <= _TOLERANCE * float(size):  # NaN fails, a layer of zeros may not
                raise EngineFailure(
                    f"{_cannot(linear)}: at {rows} rows its error is {float(error):.3g}, the "
                    f"output's size is {float(size):.3g}"
                )


def _cannot(linear: QuantizedLinear) -> str:
    shape = f"{linear.in_features} x {linear.out_features}"
    return f"humming-kernels cannot multiply a {linear.precision} layer of {shape}"


def _layer(
    linear: QuantizedLinear, weights: dict[str, Any], activations: dict[str, Any] | None
) -> Any:
    from humming.layer import HummingLayer

    layer = HummingLayer(
        shape_n=linear.out_features,
        shape_k=linear.in_features,
        weight_config=weights,
        input_config=activations,
        has_bias=linear.bias is not None,
        torch_dtype=torch.bfloat16,
    ).to(linear.codes.device)
    layer.load_from_tensors(tensors_of(linear))
    layer.transform()
    return layer


def _configs(linear: QuantizedLinear) -> tuple[dict[str, Any], dict[str, Any] | None]:
    if isinstance(linear, Int4Linear):
        group = {"group_size": linear.group_size, "has_zero_point": True}
        return {"dtype": "uint4", **group}, None
    if isinstance(linear, Int8Linear):
        return {"dtype": "int8"}, {"dtype": "int8"}
    return {"dtype": "float8e4m3"}, None


def tensors_of(linear: QuantizedLinear) -> dict[str, Tensor]:
    """Return the weights as humming names and packs them: int32 [out, ...], low bits first."""
    codes = linear.codes
    tensors = {"weight_scale": linear.scale.bfloat16()}
    if isinstance(linear, Int8Linear):
        codes = (codes.view(torch.uint8) ^ 128).contiguous()  # -128 is kept as 0
    if isinstance(linear, Int4Linear):
        tensors["zero_point"] = pack(linear.zero.t().contiguous()).t().contiguous()
    if isinstance(linear, Fp8Linear | Int8Linear):
        codes = codes.view(torch.int32)
    if linear.bias is not None:
        tensors["bias"] = linear.bias.bfloat16()
    return {"weight": codes, **tensors}
