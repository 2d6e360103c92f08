"""INT4 W4A16: 4-bit weights in groups of inputs, each with a scale and a zero point.

weight = (code - zero) * scale, codes and zeros 0 to 15. Eight codes share an int32, the first in
its lowest bits.
"""

from __future__ import annotations

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from tuner.engines.redrafter.kernels.int4_order import ordered, scale_and_zero
from tuner.engines.redrafter.quant.layer import DeviceOnly, QuantizedLinear
from tuner.errors import BadInput

GROUP_SIZES = (128, 64, 32)
_LARGEST = 15
_FEW_ROWS = 16  # beyond, unpacking once for cuBLAS is faster than tinygemm
_SOME_ROWS = 256  # beyond, it is faster than our own product
_WIDENED_AT_ONCE = 1 << 25
_LONGEST_ROW = 1 << 15  # inputs, that a program of ours holds in registers


class Int4Linear(QuantizedLinear):
    """Codes int32 [out, in / 8], scales [out, groups], zeros uint8 [out, groups]."""

    precision = "int4_awq"
    zero: Tensor

    def __init__(
        self, codes: Tensor, scale: Tensor, zero: Tensor, bias: Tensor | None = None
    ) -> None:
        super().__init__(codes, scale, bias)
        self.register_buffer("zero", zero)

    @classmethod
    def from_float(cls, weight: Tensor, bias: Tensor | None = None) -> Self:
        """Round `weight` in the largest groups that divide its inputs. Raises BadInput if none."""
        codes, scale, zero = round_groups(weight, group_size_of(weight.shape[1]))
        return cls(pack(codes), scale, zero, bias)

    @property
    def in_features(self) -> int:
        """Number of inputs."""
        return self.codes.shape[1] * 8

    @property
    def group_size(self) -> int:
        """Inputs that share a scale."""
        return self.in_features // self.scale.shape[1]

    def dequantized(self) -> Tensor:
        """Return the weight in fp32."""
        return from_groups(unpack(self.codes), self.scale, self.zero)

    def forward(self, x: Tensor) -> Tensor:
        """Unpack the weights in the dtype of `x`, then multiply."""
        return self.add_bias(F.linear(x, self.dequantized().to(x.dtype)))


class OwnInt4Linear(DeviceOnly):
    """Our own INT4 products, from one copy of the weights. CUDA only, bf16 in and out."""

    kernel = "our own, bf16 activations"
    codes: Tensor
    scale_and_zero: Tensor
    locks: Tensor
    bias: Tensor | None

    def __init__(self, linear: Int4Linear) -> None:
        super().__init__()
        locks = torch.zeros(
            -(-linear.out_features // 32), dtype=torch.int32, device=linear.codes.device
        )
        self.register_buffer("codes", ordered(unpack(linear.codes), linear.group_size))
        self.register_buffer("scale_and_zero", scale_and_zero(linear.scale, linear.zero))
        self.register_buffer("locks", locks)
        self.register_buffer("bias", linear.bias)

    @staticmethod
    def multiplies(linear: QuantizedLinear) -> bool:
        """Whether `linear` is one whose groups and inputs the kernels take."""
        if not isinstance(linear, Int4Linear):
            return False
        return linear.group_size >= 64 and linear.in_features <= _LONGEST_ROW

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out]."""
        rows = x.flatten(0, -2).contiguous()
        out = self._few(rows)
        if out is None and rows.shape[0] <= _SOME_ROWS:
            from tuner.engines.redrafter.kernels.int4_rows import multiply

            out = multiply(rows, self.codes, self.scale_and_zero, self.locks, self.bias)
        if out is None:
            out = self._through_bf16(rows)
        return out.view(*x.shape[:-1], -1)

    def gated(self, x: Tensor) -> Tensor | None:
        """Return silu(first half) * second half of the outputs; None: there are many rows."""
        return self._few(x.flatten(0, -2).contiguous(), gated=True)

    def summands(self, x: Tensor) -> Tensor:
        """Map [T, in] to [T, out], or to what is to be added up to it: [parts, T, out] in fp32."""
        out = self._few(x.contiguous(), joined=False)
        return self(x) if out is None else out

    def _few(self, x: Tensor, gated: bool = False, joined: bool = True) -> Tensor | None:
        """Multiply by the kernel for one row or a few, where there is one: [T, out] or parts."""
        from tuner.engines.redrafter.kernels.int4_few_rows import int4_few_rows, suits
        from tuner.engines.redrafter.kernels.int4_one_row import one_row

        weights = self.codes, self.scale_and_zero, self.bias
        if x.shape[0] == 1:
            return one_row(x, *weights, gated=gated)
        if suits(x.shape[0], x.shape[1] // self.scale_and_zero.shape[1], x.device):
            return int4_few_rows(x, *weights, gated, joined)
        return None

    def _through_bf16(self, rows: Tensor) -> Tensor:
        """Widen a part of the outputs at a time, so that little memory is taken."""
        from tuner.engines.redrafter.kernels.int4_widen import widened

        outputs = self.codes.shape[0]
        out = rows.new_empty(rows.shape[0], outputs)
        # NOTE: cuBLAS has fast products only for parts that begin at a multiple of 8 outputs.
        step = max(64, _WIDENED_AT_ONCE // rows.shape[1] // 64 * 64)
        for first in range(0, outputs, step):
            part = slice(first, first + step)
            weight = widened(self.codes[part], self.scale_and_zero[part])
            torch.mm(rows, weight.t(), out=out[:, part])
        return out if self.bias is None else out + self.bias.to(out.dtype)


class TinygemmLinear(DeviceOnly):
    """torch's int4 product for few rows; the weights unpacked for many.

    It holds (code - 8) * scale + zero, so an AWQ zero point becomes (8 - zero) * scale.
    """

    kernel = "torch int4pack_mm, bf16 activations"

    def __init__(self, linear: Int4Linear) -> None:
        super().__init__()
        codes = unpack(linear.codes)
        offset = (8.0 - linear.zero) * linear.scale
        both = torch.stack((linear.scale, offset), dim=-1).bfloat16()
        self.group_size = linear.group_size
        self.register_buffer("scales_and_zeros", both.transpose(0, 1).contiguous())
        self.register_buffer("packed", _tinygemm_pack(codes))
        self.reference = linear

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out]; the product is in bf16."""
        rows = x.flatten(0, -2)
        if rows.shape[0] > _FEW_ROWS:
            return self.reference(x)
        product = torch.ops.aten._weight_int4pack_mm
        if not x.is_cuda:
            product = torch.ops.aten._weight_int4pack_mm_for_cpu
        out = product(rows.bfloat16(), self.packed, self.group_size, self.scales_and_zeros)
        return self.reference.add_bias(out.to(x.dtype)).view(*x.shape[:-1], -1)


def group_size_of(in_features: int) -> int:
    """Return the largest group size that divides `in_features`. Raises BadInput if none does."""
    for size in GROUP_SIZES:
        if in_features % size == 0:
            return size
    raise BadInput(
        "quantization",
        "int4_awq",
        f"its groups of {', '.join(map(str, GROUP_SIZES))} inputs do not divide a layer of "
        f"{in_features}; use int8_sq or bf16",
    )


def round_groups(weight: Tensor, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return uint8 codes [out, in], bf16-exact scales and uint8 zeros [out, groups]."""
    groups = weight.float().unflatten(1, (-1, group_size))
    low = groups.amin(dim=-1, keepdim=True).clamp(max=0.0)
    high = groups.amax(dim=-1, keepdim=True).clamp(min=0.0)
    scale = ((high - low) / _LARGEST).bfloat16().float()
    scale = scale.where(scale > 0, 1.0)
    zero = (-low / scale).round().clamp(0, _LARGEST)
    codes = ((groups / scale).round() + zero).clamp(0, _LARGEST)
    return codes.flatten(1).to(torch.uint8), scale.squeeze(-1), zero.squeeze(-1).to(torch.uint8)


def from_groups(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Return the weight [out, in] in fp32."""
    groups = codes.unflatten(1, (scale.shape[1], -1)).float()
    return ((groups - zero.unsqueeze(-1).float()) * scale.unsqueeze(-1)).flatten(1)


def pack(codes: Tensor) -> Tensor:
    """Pack uint8 codes [out, in] into int32 [out, in / 8]."""
    pairs = codes.unflatten(1, (-1, 2))
    return (pairs[..., 0] | (pairs[..., 1] << 4)).contiguous().view(torch.int32)


def unpack(codes: Tensor) -> Tensor:
    """Return uint8 codes [out, in] of int32 [out, in / 8]."""
    pairs = codes.contiguous().view(torch.uint8)
    return torch.stack((pairs & 15, pairs >> 4), dim=-1).flatten(1)


def _tinygemm_pack(codes: Tensor) -> Tensor:
    tiles = next(tiles for tiles in (8, 4, 2) if codes.shape[1] % (16 * tiles) == 0)
    if not codes.is_cuda:
        return torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), tiles)
    # NOTE: the CUDA packing wants the first of two codes in the high bits.
    pairs = codes.unflatten(1, (-1, 2))
    return torch.ops.aten._convert_weight_to_int4pack(pairs[..., 0] << 4 | pairs[..., 1], tiles)
