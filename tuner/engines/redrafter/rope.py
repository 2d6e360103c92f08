"""Rotary position embedding, with linear and llama3 frequency scaling.

Source of the llama3 rule: the published Llama 3.1 configuration (wavelengths above
`original_max_position / low_freq_factor` are divided by `factor`, those below
`original_max_position / high_freq_factor` kept, those between interpolated).
"""

from __future__ import annotations

import math

import torch

from tuner.engines.redrafter.config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """Return the [head_dim / 2] angular frequencies in fp32."""
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequency = 1.0 / rope.theta**exponent
    if rope.kind == "linear":
        return frequency / rope.factor
    if rope.kind == "llama3":
        return _llama3(frequency, rope)
    return frequency


def _llama3(frequency: torch.Tensor, rope: RopeConfig) -> torch.Tensor:
    wavelength = 2 * math.pi / frequency
    turns = rope.original_max_position / wavelength
    keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    keep = keep.clamp(0.0, 1.0)
    return keep * frequency + (1 - keep) * frequency / rope.factor


def rotation_table(rope: RopeConfig, head_dim: int, positions: int) -> torch.Tensor:
    """Return cos and signed sin of every position for `rotate`: [positions, 2, head_dim], fp32."""
    angle = torch.outer(
        torch.arange(positions, dtype=torch.float32), inverse_frequencies(rope, head_dim)
    )
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), dim=1)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate heads [T, heads, head_dim] by cos and signed sin [T, 1, head_dim]."""
    if x.is_cuda and not x.requires_grad:  # the kernel has no backward
        from tuner.engines.redrafter.kernels.rotate import rotate as rotate_on_cuda

        return rotate_on_cuda(x, cos, sin)
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
