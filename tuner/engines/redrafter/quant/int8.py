"""INT8 W8A8: a scale for every output of the weights and for every token of the activations.

Both are symmetric: codes run from -127 to 127. SmoothQuant is what is done to the model before
(smooth.py); the layer itself knows nothing of it.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from tuner.engines.redrafter.quant.layer import DeviceOnly, QuantizedLinear, row_scale

LARGEST = 127
_FEWEST_ROWS = 32


class Int8Linear(QuantizedLinear):
    """Codes int8 [out, in], scales [out, 1]."""

    precision = "int8_sq"

    @classmethod
    def from_float(cls, weight: Tensor, bias: Tensor | None = None) -> Self:
        """Round `weight` to int8, row by row."""
        scale = row_scale(weight, LARGEST)
        codes = (weight.float() / scale).round().clamp(-LARGEST, LARGEST)
        return cls(codes.to(torch.int8), scale, bias)

    @property
    def in_features(self) -> int:
        """Number of inputs."""
        return self.codes.shape[1]

    def dequantized(self) -> Tensor:
        """Return the weight in fp32."""
        return self.codes.float() * self.scale

    def forward(self, x: Tensor) -> Tensor:
        """Quantize every token, multiply whole numbers exactly, scale back."""
        scaled, scale = scale_tokens(x)
        whole = scaled.round().double() @ self.codes.double().t()
        return self.add_bias((whole.float() * scale * self.scale.squeeze(1)).to(x.dtype))


class IntMmLinear(DeviceOnly):
    """torch's int8 product on CUDA, which asks for more than 16 rows: fewer are padded."""

    kernel = "torch int_mm, int8 activations"
    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: Int8Linear) -> None:
        super().__init__()
        self.register_buffer("weight", linear.codes.t())
        self.register_buffer("scale", linear.scale.t().contiguous())
        self.register_buffer("bias", linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out] in the dtype of `x`."""
        scaled, scale = scale_tokens(x.flatten(0, -2))
        codes = scaled.round().to(torch.int8)
        rows = codes.shape[0]
        if rows < _FEWEST_ROWS:
            codes = torch.nn.functional.pad(codes, (0, 0, 0, _FEWEST_ROWS - rows))
        out = torch._int_mm(codes, self.weight)[:rows].float() * scale * self.scale
        out = out if self.bias is None else out + self.bias.float()
        return out.to(x.dtype).view(*x.shape[:-1], -1)


def scale_tokens(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return activations scaled to [-127, 127] and their fp32 scales [..., 1]."""
    x = x.float()
    scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / LARGEST
    return x / scale, scale
