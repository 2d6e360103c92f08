"""Put the quantized layers of a checkpoint where a model has its linear layers."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from tuner.engines.redrafter.quant.formats.layout import Layout, Weights
from tuner.engines.redrafter.quant.layer import QuantizedLinear
from tuner.errors import BadInput

PartsOf = Callable[[str], list[str]]
"""From the name of one of our linear layers to the checkpoint's names of what it joins."""


def install(model: nn.Module, layout: Layout, weights: Weights, parts_of: PartsOf) -> None:
    """Replace the linear layers of `model` that `weights` hold quantized.

    Where the parts of a layer are not all of one kind they are widened: `weights` then hold them
    as any other checkpoint does.

    Raises:
        BadInput: a tensor is missing or does not fit the shape that config.json asks for.
    """
    linears = [(n, module) for n, module in model.named_modules() if isinstance(module, nn.Linear)]
    for name, linear in linears:
        parts = parts_of(name)
        if not any(layout.holds(weights, part) for part in parts):
            continue
        read = [layout.read(weights, p) if layout.holds(weights, p) else None for p in parts]
        alike = [part for part in read if isinstance(part, QuantizedLinear)]
        if len(alike) == len(parts) and len({_columns(part) for part in alike}) == 1:
            _put(model, name, linear, type(alike[0]).joined(alike))
            continue
        for part, layer in zip(parts, read, strict=True):
            if layer is not None:
                dense = layer.dequantized() if isinstance(layer, QuantizedLinear) else layer
                weights[f"{part}.weight"] = dense.bfloat16()


def _columns(layer: QuantizedLinear) -> tuple[object, ...]:
    return (type(layer), layer.bias is None, layer.codes.shape[1], layer.scale.shape[1])


def _put(model: nn.Module, name: str, linear: nn.Linear, layer: QuantizedLinear) -> None:
    ours = [layer.out_features, layer.in_features]
    asked = [linear.out_features, linear.in_features]
    if ours != asked:
        raise BadInput("model", name, f"has shape {ours}, its config.json asks for {asked}")
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, layer)
