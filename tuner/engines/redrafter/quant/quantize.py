"""From a bf16 base model to a quantized one, and any of its linear layers one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from tuner.engines.redrafter.linear import Compute, Module, apply_compute
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.quant.calibrate import observe
from tuner.engines.redrafter.quant.fold import folds
from tuner.engines.redrafter.quant.fp8 import Fp8Linear
from tuner.engines.redrafter.quant.int4 import Int4Linear
from tuner.engines.redrafter.quant.int8 import Int8Linear
from tuner.engines.redrafter.quant.kernels import fast_linear
from tuner.engines.redrafter.quant.layer import QuantizedLinear
from tuner.engines.redrafter.quant.scale_cache import (
    Scales,
    cache_key,
    read_scales,
    write_scales,
)
from tuner.engines.redrafter.quant.smooth import awq_scale, smoothing_scale
from tuner.errors import BadInput

KINDS: dict[str, type[QuantizedLinear]] = {
    kind.precision: kind for kind in (Fp8Linear, Int8Linear, Int4Linear)
}
CALIBRATED = {"int8_sq": smoothing_scale, "int4_awq": awq_scale}
HEAD = "lm_head"
HEAD_STAYS = ("int4_awq",)  # as in the checkpoints that people download


@torch.no_grad()
def quantize(
    model: Llama,
    compute: Compute,
    prompts: Sequence[Sequence[int]],
    model_dir: Path | None = None,
    cache: Path | None = None,
    kernel: str = "auto",
) -> Llama:
    """Quantize `model` in place for `compute` and return it, ready to serve.

    `prompts` are token ids that the model reads to find its scales, where the precision has any;
    they are found once for the same `model_dir` and prompts when a `cache` folder is given.
    A model that came quantized keeps its codes, and what it left wide stays so.

    Raises:
        BadInput: stored in another quantized precision, no prompts, activations that are not
            finite, or groups that do not divide a layer.
    """
    stored = {m.precision for m in model.modules() if isinstance(m, QuantizedLinear)}
    if stored - {compute.precision}:
        raise BadInput(
            "quantization",
            compute.precision,
            f"the checkpoint is stored in {', '.join(sorted(stored))}; ask for that, or for bf16",
        )
    model.requires_grad_(False).to(device=compute.device, dtype=compute.weight_dtype)
    if stored:
        _speed_up(model, kernel)
        return apply_compute(model, compute, keep_codes=True)
    scales: Scales = {}
    if compute.precision in CALIBRATED:
        scales = _scales(model, compute.precision, prompts, model_dir, cache)
    for index, layer in enumerate(model.layers):
        if scales:
            _fold(model, index, scales)
        quantize_linears(layer, compute.precision, kernel)
    if compute.precision not in HEAD_STAYS:
        quantize_linears(model, compute.precision, kernel, only=(HEAD,))
    return apply_compute(model, compute, keep_codes=True)


def round_to_nearest(module: Module, compute: Compute) -> Module:
    """Quantize all linear layers of `module` in place for `compute`, without calibration."""
    module.requires_grad_(False).to(device=compute.device, dtype=compute.weight_dtype)
    quantize_linears(module, compute.precision)
    return apply_compute(module, compute, keep_codes=True)


def quantize_linears(
    module: nn.Module, precision: str, kernel: str = "auto", only: tuple[str, ...] = ()
) -> None:
    """Replace the linear layers below `module`, or its children `only`, by quantized ones."""
    for name, child in module.named_children():
        if only and name not in only:
            continue
        if isinstance(child, nn.Linear):
            rounded = KINDS[precision].from_float(child.weight, child.bias)
            setattr(module, name, fast_linear(rounded, kernel))
        else:
            quantize_linears(child, precision, kernel)


def _speed_up(module: nn.Module, kernel: str) -> None:
    """Give the layers that came quantized their fast products; the others stay as they came."""
    for name, child in module.named_children():
        if isinstance(child, QuantizedLinear):
            setattr(module, name, fast_linear(child, kernel))
        else:
            _speed_up(child, kernel)


def _scales(
    model: Llama,
    precision: str,
    prompts: Sequence[Sequence[int]],
    model_dir: Path | None,
    cache: Path | None,
) -> Scales:
    """Return the scale of every fold, from the cache or by letting the model read `prompts`."""
    if cache is None or model_dir is None:
        return _calibrate(model, precision, prompts)
    key = cache_key(model_dir, precision, prompts)
    scales = read_scales(cache, key)
    if scales is None:
        scales = _calibrate(model, precision, prompts)
        about = {
            "precision": precision,
            "model": model_dir.name,
            "prompts": len(prompts),
            "tokens": sum(map(len, prompts)),
        }
        write_scales(cache, key, scales, about)
    return scales


def _calibrate(model: Llama, precision: str, prompts: Sequence[Sequence[int]]) -> Scales:
    seen = observe(model, prompts)
    find = CALIBRATED[precision]
    layers = range(len(model.layers))
    return {
        fold.name: find(fold, seen[fold.name]) for layer in layers for fold in folds(model, layer)
    }


def _fold(model: Llama, layer: int, scales: Scales) -> None:
    for fold in folds(model, layer):
        if fold.name not in scales:
            raise BadInput("calibration", fold.name, "has no scale; delete the cached scales")
        fold.apply(scales[fold.name])
