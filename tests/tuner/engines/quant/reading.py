"""A model reading one prompt, for tests."""

from __future__ import annotations

import torch

from tuner.engines.redrafter.quant.calibrate import causal

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3)


@torch.no_grad()
def logits_of(model, prompt=PROMPT):
    """Logits of every position of `prompt`, in fp32."""
    tokens = torch.tensor(prompt)
    model.prepare_positions(len(prompt), torch.device("cpu"), model.norm.weight.dtype)
    hidden, _ = model(tokens, torch.arange(len(prompt)), causal)
    return model.logits(hidden).float()
