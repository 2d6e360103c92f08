"""Tiny checkpoints as other tools quantize them, packed code by code from their documentation."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.tuner.engines.tiny import edit_config

GROUP = 16
E4M3 = torch.float8_e4m3fn
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def requantize(folder: Path, settings: dict, store, **also) -> dict[str, torch.Tensor]:
    """Rewrite a plain checkpoint's layers by `store(weight)`; return what they then stand for."""
    path = folder / "model.safetensors"
    tensors, expected = load_file(path), {}
    for name in [n for n in tensors if n.endswith("_proj.weight")]:
        stored, weight = store(tensors.pop(name).float())
        prefix = name.removesuffix("weight")
        tensors.update({prefix + key: value.contiguous() for key, value in stored.items()})
        expected[name] = weight
    save_file(tensors, str(path), {"format": "pt"})
    edit_config(folder, quantization_config=settings, **also)
    return expected


def compressed(kind: str, of: str, bits: int, strategy: str, symmetric: bool = True) -> dict:
    weights = {"num_bits": bits, "type": of, "strategy": strategy, "symmetric": symmetric}
    group = {"targets": ["Linear"], "weights": {**weights, "group_size": None, "dynamic": False}}
    return {
        "quant_method": "compressed-tensors",
        "format": kind,
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }


def fp8_rows(weight):
    scale = weight.abs().amax(1, keepdim=True) / 448
    codes = (weight / scale).to(E4M3)
    return {"weight": codes, "weight_scale": scale}, codes.float() * scale


def fp8_tensor(weight):
    scale = weight.abs().max() / 448
    codes = (weight / scale).to(E4M3)
    extra = {"input_scale": torch.tensor(0.5)}
    return {"weight": codes, "weight_scale": scale, **extra}, codes.float() * scale


def fp8_blocks(weight):
    blocks = weight.unfold(0, 16, 16).unfold(1, 16, 16).abs().amax((2, 3)) / 448
    scale = blocks.repeat_interleave(16, 0).repeat_interleave(16, 1)
    codes = (weight / scale).to(E4M3)
    return {"weight": codes, "weight_scale_inv": blocks}, codes.float() * scale


def int8_rows(weight):
    scale = weight.abs().amax(1, keepdim=True) / 127
    codes = (weight / scale).round().to(torch.int8)
    return {"weight": codes, "weight_scale": scale}, codes.float() * scale


def _four_bits(weight):
    """Codes [out, in], scales and zeros [out, groups], and the weight they stand for."""
    groups = weight.unflatten(1, (-1, GROUP))
    scale = (groups.amax(2) - groups.amin(2)) / 15
    zero = (-groups.amin(2) / scale).round().clamp(0, 15)
    codes = ((groups / scale.unsqueeze(2)).round() + zero.unsqueeze(2)).clamp(0, 15)
    meant = (codes - zero.unsqueeze(2)) * scale.unsqueeze(2)
    return codes.flatten(1).int(), scale, zero.int(), meant.flatten(1)


def _pack_rows(codes, order=range(8)):
    """Eight codes of a row to an int32: the code `order[i]` of every eight in bits 4i to 4i + 3."""
    packed = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int64)
    for place, code in enumerate(order):
        packed |= codes[:, code::8].long() << (4 * place)
    return packed.where(packed < 2**31, packed - 2**32).int()


def int4_packed(weight):
    """compressed-tensors pack-quantized with zero points."""
    codes, scale, zero, meant = _four_bits(weight)
    shape = torch.tensor(weight.shape)
    packed_zero = _pack_rows(zero.t()).t()
    stored = {"weight_packed": _pack_rows(codes), "weight_scale": scale}
    return {**stored, "weight_shape": shape, "weight_zero_point": packed_zero}, meant


def int4_symmetric(weight):
    """compressed-tensors pack-quantized without zero points."""
    groups = weight.unflatten(1, (-1, GROUP))
    scale = groups.abs().amax(2) / 7
    codes = (groups / scale.unsqueeze(2)).round().clamp(-8, 7)
    meant = (codes * scale.unsqueeze(2)).flatten(1)
    packed = _pack_rows((codes + 8).flatten(1))
    return {"weight_packed": packed, "weight_scale": scale}, meant


def awq(weight):
    codes, scale, zero, meant = _four_bits(weight)
    qweight, qzeros = _pack_rows(codes.t(), AWQ_ORDER), _pack_rows(zero.t(), AWQ_ORDER)
    return {"qweight": qweight, "qzeros": qzeros, "scales": scale.t()}, meant


AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}
FP8 = {"quant_method": "fp8", "activation_scheme": "static"}
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 16]}
