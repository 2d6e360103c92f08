"""The fast product of each kind of quantized layer; the reference where there is none.

On CUDA humming-kernels where installed: on an H200 it is the fastest for 1 to 32 rows in every
precision (8B shapes). Otherwise torch's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import nn

from tuner.engines.redrafter.quant import humming
from tuner.engines.redrafter.quant.fp8 import Fp8Linear, ScaledMmLinear
from tuner.engines.redrafter.quant.int4 import Int4Linear, TinygemmLinear
from tuner.engines.redrafter.quant.int8 import Int8Linear, IntMmLinear
from tuner.engines.redrafter.quant.layer import QuantizedLinear

KERNELS = ("auto", "humming", "humming_fp8_activations", "torch", "reference")


def fast_linear(linear: QuantizedLinear, kernel: str = "auto") -> nn.Module:
    """Return the module that multiplies by `linear` on the device where its codes are."""
    if kernel == "reference" or linear.codes.device.type == "cpu":
        return linear
    if kernel.startswith("humming") or (kernel == "auto" and humming.multiplies(linear)):
        return humming.HummingLinear(linear, kernel == "humming_fp8_activations")
    return _torch_linear(linear)


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
