"""How a precision is computed on a device: which tensors, which kernels.

CUDA, and CPUs with bf16 matrix instructions, run the stock linear layer in the precision itself.
CPUs without them have no fast bf16 or fp16 product in torch: a product of 5 rows costs four times
one row. There the weights are packed once for FBGEMM's fp16 kernel, which reads half-precision
weights and accumulates in fp32. bf16 weights are exact in fp16 wherever they are at least 6.1e-5
in magnitude, and off by at most 3e-8 below.

Quantized precisions (quant/) replace linear layers only: what is left is computed as bf16 is on the
device. So is the drafter, unless it is to be quantized itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar, get_args

import torch
from torch import Tensor, nn

from profiles.records import DrafterPrecision
from tuner.engines.redrafter.dense import Linear
from tuner.engines.redrafter.quant.layer import QuantizedLinear
from tuner.engines.redrafter.quant.support import QUANTIZED, refused
from tuner.errors import UnsupportedConfig

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
DEFAULT_PRECISION = "bf16"
DRAFTER_PRECISIONS = get_args(DrafterPrecision)
_FP16_MAX = 65504.0
Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class Compute:
    """The compute path of a precision on a device, in words and in dtypes."""

    precision: str
    device: torch.device
    weight_dtype: torch.dtype
    activation_dtype: torch.dtype
    packed: bool

    @property
    def quantized(self) -> bool:
        """Whether linear layers are held in 8 or 4 bits."""
        return self.precision in QUANTIZED

    @property
    def description(self) -> str:
        """One line for the record."""
        activations = str(self.activation_dtype).removeprefix("torch.")
        if self.quantized:
            return f"{self.precision} linear layers, the rest in {activations}"
        if self.packed:
            return f"{self.precision} weights packed for FBGEMM fp16, {activations} activations"
        return f"torch linear, {activations}"


def compute_path(precision: str, device: torch.device) -> Compute:
    """Choose how `precision` is computed on `device`.

    Raises:
        UnsupportedConfig: a precision that this engine or `device` does not have.
    """
    if precision in QUANTIZED:
        if reason := refused(device).get(precision):
            raise UnsupportedConfig("quantization", precision, reason)
        return replace(compute_path("bf16", device), precision=precision)
    if precision not in DTYPES:
        raise UnsupportedConfig(
            "quantization", precision, f"use one of {', '.join((*DTYPES, *QUANTIZED))}"
        )
    dtype = DTYPES[precision]
    if device.type == "cpu" and precision != "fp32" and not _cpu_has(precision):
        return Compute(precision, device, dtype, torch.float32, packed=True)
    return Compute(precision, device, dtype, dtype, packed=False)


def drafter_compute(base: Compute, quantization: str | None) -> Compute:
    """Choose how the drafter of a base model on the path `base` is computed; None: not quantized.

    Raises:
        UnsupportedConfig: a precision that drafters or the device do not have, or that needs other
            activations than the base model's.
    """
    if quantization is None:
        return replace(base, precision="bf16") if base.quantized else base
    reason = refused(base.device, "leave it out").get(quantization)
    if quantization not in DRAFTER_PRECISIONS:
        reason = f"use {', '.join(DRAFTER_PRECISIONS)} or leave it out"
    elif base.device.type == "cuda" and base.activation_dtype != torch.bfloat16:
        reason = f"needs the base model in bf16 or quantized, not in {base.precision}"
    if reason:
        raise UnsupportedConfig("drafter_quantization", quantization, reason)
    return replace(base, precision=quantization)


def _cpu_has(precision: str) -> bool:
    if precision == "bf16":
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


class PackedLinear(nn.Module):
    """A linear layer with fp16 weights packed for FBGEMM; fp32 in, fp32 out."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float().clamp(-_FP16_MAX, _FP16_MAX)
        bias = None if linear.bias is None else linear.bias.detach().float()
        self.packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)
        self.nbytes = 2 * weight.numel() + (0 if bias is None else 4 * bias.numel())

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out]."""
        return torch.ops.quantized.linear_dynamic_fp16(x, self.packed)


def apply_compute(module: Module, compute: Compute, keep_codes: bool = False) -> Module:
    """Move `module` to the device and precision of `compute`, packing its linear layers.

    Layers that came quantized are widened, unless `keep_codes`.
    """
    if compute.device.type == "cuda":
        # NOTE: cuDNN's attention plans anew for every context length, at tens of milliseconds.
        torch.backends.cuda.enable_cudnn_sdp(False)
    module.requires_grad_(False)
    if not keep_codes:
        _widen(module, compute.weight_dtype)
    module.to(device=compute.device, dtype=compute.weight_dtype)
    if compute.packed:
        _pack(module, compute.activation_dtype)
    return module.eval()


def _widen(module: nn.Module, dtype: torch.dtype) -> None:
    """Replace layers of codes and scales by the weights that they stand for."""
    for name, child in module.named_children():
        if not isinstance(child, QuantizedLinear):
            _widen(child, dtype)
            continue
        with torch.device("meta"):
            linear = Linear(child.in_features, child.out_features, child.bias is not None)
        linear.weight = nn.Parameter(child.dequantized().to(dtype), requires_grad=False)
        if child.bias is not None:
            linear.bias = nn.Parameter(child.bias.to(dtype), requires_grad=False)
        setattr(module, name, linear)


def _pack(module: nn.Module, activation_dtype: torch.dtype) -> None:
    """Pack linear layers, widen norms; embedding tables stay as they are and are cast by row."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(child))
        elif not isinstance(child, nn.Embedding):
            _pack(child, activation_dtype)
    for parameter in module.parameters(recurse=False):
        if not isinstance(module, nn.Embedding):
            parameter.data = parameter.data.to(activation_dtype)


def module_bytes(module: nn.Module) -> int:
    """Return the bytes of a module's weights, packed ones included, shared ones once."""
    seen: dict[int, int] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        seen[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
    packed = sum(m.nbytes for m in module.modules() if isinstance(m, PackedLinear))
    return sum(seen.values()) + packed
