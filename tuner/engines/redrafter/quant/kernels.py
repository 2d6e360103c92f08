"""The fast product of each kind of quantized layer; the reference where there is none.

On CUDA humming-kernels where installed: on an H200 it is the fastest for 1 to 32 rows in every
precision (8B shapes). Otherwise torch's own.
"""

from __future__ import annotations

from collections import Counter

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
    if kernel.startswith("humming") or (kernel == "auto" and humming.installed()):
        return humming.HummingLinear(linear, kernel == "humming_fp8_activations")
    return _torch_linear(linear)


def describe_kernels(module: nn.Module) -> str:
    """Name the products that a module's quantized layers use, with how many use each."""
    kernels = (getattr(child, "kernel", None) for child in module.modules())
    counted = Counter(kernel for kernel in kernels if isinstance(kernel, str))
    return "; ".join(f"{count} x {kernel}" for kernel, count in counted.most_common())


def _torch_linear(linear: QuantizedLinear) -> nn.Module:
    if isinstance(linear, Fp8Linear) and not _in_sixteens(linear):
        return linear
    if isinstance(linear, Fp8Linear):
        return ScaledMmLinear(linear)
    if isinstance(linear, Int8Linear):
        return IntMmLinear(linear)
    assert isinstance(linear, Int4Linear)
    return TinygemmLinear(linear)


def _in_sixteens(linear: QuantizedLinear) -> bool:
    return linear.in_features % 16 == 0 and linear.out_features % 16 == 0
