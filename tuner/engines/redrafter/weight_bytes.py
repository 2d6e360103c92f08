"""Bytes of weights on a compute path, counted without weights.

Modules are built on torch's meta device, where tensors have shapes and no numbers, so what is
counted is what the loaders would build.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.linear import Compute
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.quant.formats import layout_of
from tuner.engines.redrafter.quant.kernels import held_bytes
from tuner.engines.redrafter.quant.quantize import CALIBRATED, HEAD, HEAD_STAYS, KINDS

_DIVIDED = ("qkv_proj", "gate_up_proj")


def llama_bytes(config: LlamaConfig, compute: Compute) -> int:
    """Return the bytes of a base model of `config` as `load_computed` leaves it.

    A checkpoint that came quantized is taken to have left its LM head wide, as they do.
    """
    came_quantized = config.folder is not None and layout_of(config.folder) is not None
    return _llama_bytes(config, compute, came_quantized or compute.precision in HEAD_STAYS)


@lru_cache
def _llama_bytes(config: LlamaConfig, compute: Compute, head_stays: bool) -> int:
    with torch.device("meta"):
        model = Llama(config)
    total = 0
    for name, part in model.named_modules():
        if compute.quantized and isinstance(part, nn.Linear) and not (name == HEAD and head_stays):
            total += _quantized_bytes(name, part, compute)
        else:
            total += _own_bytes(part, compute)
    head_is_wide = head_stays or not compute.quantized
    if config.tie_word_embeddings and head_is_wide and not compute.packed:
        total -= _own_bytes(model.lm_head, compute)  # it is the table of input tokens
    return total


def plain_bytes(module: nn.Module, compute: Compute) -> int:
    """Return the bytes of a `module` without shared tensors after `apply_compute`.

    On a quantized path: after `round_to_nearest`.
    """
    return sum(
        _quantized_bytes(name, part, compute)
        if compute.quantized and isinstance(part, nn.Linear)
        else _own_bytes(part, compute)
        for name, part in module.named_modules()
    )


def _own_bytes(part: nn.Module, compute: Compute) -> int:
    own = (*part.parameters(recurse=False), *part.buffers(recurse=False))
    return sum(tensor.numel() * _dtype(part, tensor, compute).itemsize for tensor in own)


def _dtype(part: nn.Module, tensor: Tensor, compute: Compute) -> torch.dtype:
    if not tensor.is_floating_point():
        return tensor.dtype
    if not compute.packed or isinstance(part, nn.Embedding):
        return compute.weight_dtype
    matrix = isinstance(part, nn.Linear) and tensor.dim() > 1
    return compute.weight_dtype if matrix else compute.activation_dtype


def _quantized_bytes(name: str, linear: nn.Linear, compute: Compute) -> int:
    # NOTE: biases that calibration divides by scales stay in fp32.
    divided = compute.precision in CALIBRATED and name.endswith(_DIVIDED)
    dtype = torch.float32 if divided else compute.weight_dtype
    bias = None if linear.bias is None else linear.bias.to(dtype)
    rounded = KINDS[compute.precision].from_float(linear.weight, bias)
    return held_bytes(rounded, compute.device)
