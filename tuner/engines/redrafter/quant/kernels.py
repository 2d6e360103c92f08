"""The fast product of each kind of quantized layer; the reference where there is none.

On CUDA humming-kernels where installed: on an H200 it is the fastest for 1 to 32 rows in every
precision (8B shapes). Otherwise torch's own. For FP8 and more rows torch's is faster; "by_rows" has
both, which takes two copies of the weights, and lets a token's rounding depend on its company.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tuner.engines.redrafter.quant import humming
from tuner.engines.redrafter.quant.fp8 import Fp8Linear, ScaledMmLinear, TritonFp8Linear
from tuner.engines.redrafter.quant.int4 import Int4Linear, TinygemmLinear
from tuner.engines.redrafter.quant.int8 import Int8Linear, IntMmLinear
from tuner.engines.redrafter.quant.layer import DeviceOnly, QuantizedLinear

KERNELS = ("auto", "humming", "humming_fp8_activations", "torch", "by_rows", "reference")
_FEW_ROWS = 32


class ByRows(DeviceOnly):
    """One product for few rows and another for many."""

    def __init__(self, few: nn.Module, many: nn.Module) -> None:
        super().__init__()
        self.few, self.many = few, many
        self.kernel = f"{few.kernel} to {_FEW_ROWS} rows, then {many.kernel}"

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out]."""
        rows = x.numel() // x.shape[-1]
        return self.few(x) if rows <= _FEW_ROWS else self.many(x)


def fast_linear(linear: QuantizedLinear, kernel: str = "auto") -> nn.Module:
    """Return the module that multiplies by `linear` on the device where its codes are."""
    if kernel == "reference" or linear.codes.device.type == "cpu":
        return linear
    if kernel == "auto" and isinstance(linear, Fp8Linear):
        return TritonFp8Linear(linear)
    if kernel == "by_rows" and isinstance(linear, Fp8Linear):
        return ByRows(humming.HummingLinear(linear), _torch_linear(linear))
    if kernel.startswith("humming") or (
        kernel in ("auto", "by_rows") and humming.multiplies(linear)
    ):
        return humming.HummingLinear(linear, kernel == "humming_fp8_activations")
    return _torch_linear(linear)


def held_bytes(linear: QuantizedLinear, device: torch.device) -> int:
    """Return the bytes of what `fast_linear` makes of `linear` on `device`.

    Shapes are enough: `linear` may be on torch's meta device. humming-kernels reorder what they are
    given and are taken to hold as many bytes.
    """
    if device.type != "cpu" and not isinstance(linear, Fp8Linear) and humming.multiplies(linear):
        return sum(tensor.nbytes for tensor in humming.tensors_of(linear).values())
    made: nn.Module = linear
    if device.type != "cpu":
        made = TritonFp8Linear(linear) if isinstance(linear, Fp8Linear) else _torch_linear(linear)
    return sum(tensor.nbytes for tensor in made.buffers())


def describe_kernels(module: nn.Module) -> str:
    """Name the products that a module's quantized layers use, with how many use each."""
    counted = Counter(_kernels_below(module))
    return "; ".join(f"{count} x {kernel}" for kernel, count in counted.most_common())


def _kernels_below(module: nn.Module) -> Iterator[str]:
    for child in module.children():
        kernel = getattr(child, "kernel", None)
        if isinstance(kernel, str):
            yield kernel
        else:
            yield from _kernels_below(child)


def _torch_linear(linear: QuantizedLinear) -> nn.Module:
    if isinstance(linear, Int4Linear):
        return TinygemmLinear(linear)
    if linear.in_features % 16 or linear.out_features % 16:
        return linear
    if isinstance(linear, Fp8Linear):
        return ScaledMmLinear(linear)
    assert isinstance(linear, Int8Linear)
    return IntMmLinear(linear)
