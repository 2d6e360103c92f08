"""FP8: e4m3 weights with a scale for every output, activations with one for every token."""

from __future__ import annotations

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from tuner.engines.redrafter.dense import is_single_row
from tuner.engines.redrafter.quant.layer import DeviceOnly, QuantizedLinear, row_scale

E4M3 = torch.float8_e4m3fn
LARGEST = 448.0


class Fp8Linear(QuantizedLinear):
    """Codes are the bytes of e4m3 numbers [out, in], scales [out, 1]."""

    precision = "fp8"

    @classmethod
    def from_float(cls, weight: Tensor, bias: Tensor | None = None) -> Self:
        """Round `weight` to e4m3, row by row."""
        scale = row_scale(weight, LARGEST)
        return cls(_to_e4m3(weight.float() / scale).view(torch.uint8), scale, bias)

    @property
    def in_features(self) -> int:
        """Number of inputs."""
        return self.codes.shape[1]

    @property
    def e4m3(self) -> Tensor:
        """The codes as the numbers they are."""
        return self.codes.view(E4M3)

    def dequantized(self) -> Tensor:
        """Return the weight in fp32."""
        return self.e4m3.float() * self.scale

    def forward(self, x: Tensor) -> Tensor:
        """Quantize every token, multiply in fp32, scale back."""
        codes, scale = quantize_tokens(x)
        out = F.linear(codes.float(), self.e4m3.float()) * scale * self.scale.squeeze(1)
        return self.add_bias(out.to(x.dtype))


class TritonFp8Linear(DeviceOnly):
    """Our own FP8 products. CUDA only, bf16 in and out.

    One row meets the weights in bf16, because rounding it would take longer than it saves; several
    rows are rounded to FP8, token by token.
    """

    kernel = "Triton, bf16 activations for one row, fp8 for more"
    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: Fp8Linear) -> None:
        super().__init__()
        self.register_buffer("weight", linear.e4m3)
        self.register_buffer("scale", linear.scale.squeeze(1).contiguous())
        self.register_buffer("bias", linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out]."""
        from tuner.engines.redrafter.kernels import fp8_rows, one_row

        rows = x.flatten(0, -2).contiguous()
        if rows.shape[0] == 1:
            out = one_row.one_row(rows, self.weight, self.bias, self.scale)
        else:
            codes, scale = fp8_rows.quantize_tokens(rows, LARGEST)
            out = fp8_rows.multiply(codes, scale, self.weight, self.scale, self.bias)
        return out.view(*x.shape[:-1], -1)

    def gated(self, x: Tensor) -> Tensor | None:
        """Return silu(first half) * second half of the outputs of one row; None: there are more."""
        if not is_single_row(x):
            return None
        from tuner.engines.redrafter.kernels.one_row import one_row

        return one_row(x, self.weight, self.bias, self.scale, gated=True)


class ScaledMmLinear(DeviceOnly):
    """torch's row-wise FP8 product. CUDA only; inputs and outputs in multiples of 16."""

    kernel = "torch scaled_mm, fp8 activations"
    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: Fp8Linear) -> None:
        super().__init__()
        bias = None if linear.bias is None else linear.bias.bfloat16()
        self.register_buffer("weight", linear.e4m3.t())
        self.register_buffer("scale", linear.scale.t().contiguous())
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out] in bf16."""
        codes, scale = quantize_tokens(x.flatten(0, -2))
        out = torch._scaled_mm(
            codes,
            self.weight,
            scale_a=scale,
            scale_b=self.scale,
            bias=self.bias,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
        return out.view(*x.shape[:-1], -1)


def quantize_tokens(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return e4m3 codes [..., in] and fp32 scales [..., 1] of activations."""
    peak = x.abs().amax(dim=-1, keepdim=True).float()
    scale = peak.clamp(min=1e-12) / LARGEST
    return _to_e4m3(x.float() / scale), scale


def _to_e4m3(x: Tensor) -> Tensor:
    return x.clamp(-LARGEST, LARGEST).to(E4M3)
