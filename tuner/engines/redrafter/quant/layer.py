"""A linear layer held as codes and scales. Its forward is the reference that kernels must meet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor, nn


class DeviceOnly(nn.Module):
    """A module whose tensors follow `.to(device)` and ignore `.to(dtype)`."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(fn(torch.empty(0, device=tensor.device)).device)

        return super()._apply(move, recurse)


class QuantizedLinear(DeviceOnly, ABC):
    """Codes [out, ...] and scales [out, ...]: every buffer has a row for every output.

    `bias` is [out] or None. Inputs are [..., in] in bf16 or fp32, outputs have the same dtype.
    """

    precision: ClassVar[str]
    kernel: ClassVar[str] = "torch reference"
    codes: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, codes: Tensor, scale: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale.float())
        self.register_buffer("bias", bias)

    @classmethod
    @abstractmethod
    def from_float(cls, weight: Tensor, bias: Tensor | None = None) -> Self:
        """Round `weight` [out, in] to the nearest codes."""

    @property
    def out_features(self) -> int:
        """Number of outputs."""
        return self.codes.shape[0]

    @property
    @abstractmethod
    def in_features(self) -> int:
        """Number of inputs."""

    @abstractmethod
    def dequantized(self) -> Tensor:
        """Return the weight that the codes stand for, [out, in] in fp32."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out] in plain torch."""

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Put the outputs of `parts` one after the other in one layer."""
        rows = [dict(part.named_buffers()) for part in parts]
        return cls(**{name: torch.cat([row[name] for row in rows]) for name in rows[0]})

    def add_bias(self, out: Tensor) -> Tensor:
        """Add the bias, where there is one."""
        return out if self.bias is None else out + self.bias.to(out.dtype)


def row_scale(weight: Tensor, largest_code: float) -> Tensor:
    """Return the scale of every row, [out, 1], so that its largest weight meets the largest code.

    NOTE: rounded to bf16 before it is used, because kernels hold it so.
    """
    peak = weight.float().abs().amax(dim=1, keepdim=True)
    scale = (peak / largest_code).bfloat16().float()
    return scale.where(scale > 0, 1.0)
