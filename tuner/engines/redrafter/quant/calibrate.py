"""What the base model's linear layers read while it reads a workload's prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tuner.engines.redrafter.llama import Llama
from tuner.errors import BadInput

SAMPLE_ROWS = 512


@dataclass(slots=True)
class Activations:
    """Inputs of one linear layer: largest and mean size of every channel, and some whole rows."""

    peak: Tensor  # [in] fp32
    mean: Tensor  # [in] fp32
    sample: Tensor  # [rows, in] in the model's dtype


class _Watch:
    """Gathers the inputs of one linear layer, `per_prompt` rows of each prompt."""

    def __init__(self, linear: nn.Linear, per_prompt: int) -> None:
        self.peak = torch.zeros(linear.in_features, device=linear.weight.device)
        self.total = torch.zeros_like(self.peak)
        self.tokens = 0
        self.rows: list[Tensor] = []
        self.per_prompt = per_prompt
        self.handle: RemovableHandle = linear.register_forward_pre_hook(self)

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        size = inputs[0].float().abs()
        self.peak = torch.maximum(self.peak, size.amax(dim=0))
        self.total += size.sum(dim=0)
        self.tokens += size.shape[0]
        stride = max(1, size.shape[0] // self.per_prompt)
        self.rows.append(inputs[0][stride // 2 :: stride][: self.per_prompt].clone())

    def activations(self, name: str) -> Activations:
        mean = self.total / self.tokens
        if not bool(torch.isfinite(mean).all()):
            raise BadInput(
                "calibration", name, "its input holds NaN or infinity; check the model's weights"
            )
        return Activations(self.peak, mean, torch.cat(self.rows))


@torch.no_grad()
def observe(model: Llama, prompts: Sequence[Sequence[int]]) -> dict[str, Activations]:
    """Let `model` read `prompts` and return what its layers' linears read, by module name.

    Raises:
        BadInput: no prompts, or activations that are not finite.
    """
    if not prompts:
        raise BadInput("calibration", len(prompts), "give at least one prompt")
    device = model.norm.weight.device
    longest = max(len(prompt) for prompt in prompts)
    model.prepare_positions(longest, device, model.norm.weight.dtype)
    per_prompt = -(-SAMPLE_ROWS // len(prompts))
    watches = {
        f"layers.{name}": _Watch(module, per_prompt)
        for name, module in model.layers.named_modules()
        if isinstance(module, nn.Linear)
    }
    try:
        for prompt in prompts:
            tokens = torch.tensor(prompt, device=device)
            model(tokens, torch.arange(len(prompt), device=device), causal)
    finally:
        for watch in watches.values():
            watch.handle.remove()
    return {name: watch.activations(name) for name, watch in watches.items()}


def causal(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Plain causal attention of one prompt, [T, heads, dim]."""
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out[0].transpose(0, 1)
