"""Run the base model over padded rows, without a cache."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from tuner.engines.redrafter.checkpoint import load_llama
from tuner.engines.redrafter.linear import Compute, apply_compute, compute_path
from tuner.engines.redrafter.llama import Llama
from tuner.errors import BadInput


def serving_compute(device: torch.device) -> Compute:
    """Return how drafters are served while they are trained: bf16 on a GPU, fp32 on the CPU."""
    return compute_path("bf16" if device.type == "cuda" else "fp32", device)


def load_frozen(model_dir: Path, device: torch.device, positions: int) -> Llama:
    """Load the base model for training, as it is served; no gradients."""
    if device.type == "cuda":
        # NOTE: products of bf16 values are exact in TF32; only the fp32 logits are affected.
        torch.set_float32_matmul_precision("high")
    model = load_llama(model_dir)
    if positions > model.config.max_position:
        raise BadInput(
            "max_new_tokens", positions, f"the model has {model.config.max_position} positions"
        )
    compute = serving_compute(device)
    apply_compute(model, compute)
    model.prepare_positions(positions, device, compute.activation_dtype)
    return model


def read_rows(
    model: Llama, tokens: Tensor, context_layers: tuple[int, ...] = ()
) -> tuple[Tensor, Tensor]:
    """Read right-padded rows [R, L]; what is left of the padding does not see it.

    Returns:
        Hidden states [R, L, hidden] and contexts [R, L, context_size].
    """
    rows, length = tokens.shape

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return causal_attention(q, k, v, rows)

    positions = torch.arange(length, device=tokens.device).repeat(rows)
    hidden, context = model(tokens.flatten(), positions, attend, context_layers)
    return hidden.view(rows, length, -1), context.view(rows, length, -1)


def causal_attention(q: Tensor, k: Tensor, v: Tensor, rows: int) -> Tensor:
    """Attend within each of `rows` rows of equal length: [T, heads, dim] -> [T, heads, dim]."""
    q, k, v = (x.unflatten(0, (rows, -1)).transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2).flatten(0, 1)
