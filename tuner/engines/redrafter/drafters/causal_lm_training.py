"""Make a small causal LM out of the base model: some of its layers, then trained on its answers.

The embedding and the head stay the base model's; layers and norm learn to do with few what all did.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from tuner.engines.redrafter.checkpoint import load_llama, save_llama
from tuner.engines.redrafter.drafters.causal_lm import CausalLMDraft
from tuner.engines.redrafter.linear import apply_compute
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch import Batch
from tuner.engines.redrafter.training.curriculum import Stage
from tuner.engines.redrafter.training.forward import read_rows, serving_compute
from tuner.engines.redrafter.training.loop import OnProgress
from tuner.engines.redrafter.training.loss import Objective, distillation_loss, distillation_targets
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.engines.redrafter.training.spec import LoopSpec
from tuner.engines.redrafter.training.step import StepLoss
from tuner.engines.redrafter.training.train import TrainReport, train
from tuner.engines.redrafter.training.trainee import Trainee
from tuner.errors import BadInput


@dataclass(frozen=True, slots=True)
class CausalLMSpec(LoopSpec):
    """A drafter of some layers of the base model, counted from 0."""

    layers: tuple[int, ...] = ()


class CausalLMTrainee(Trainee):
    """Begins as the base model's own layers. Raises BadInput for a layer that the model lacks."""

    def __init__(self, spec: CausalLMSpec, base: Llama, rows: AnswerRows) -> None:
        self.spec, self.base = spec, base
        self.draft_len = 1  # whatever is drafted later, it learns to say the next token
        small = thin_out(load_llama(spec.model_dir), spec.layers).float()
        self.network = self.small = small.to(base.norm.weight.device)
        small.rotation = base.rotation
        for frozen in (small.embed_tokens, small.lm_head):
            frozen.requires_grad_(False)

    def compare(self, batch: Batch, fraction: float, chance: torch.Generator) -> StepLoss:
        """Compare the next token wherever one could be drafted."""
        return next_token_loss(self.base, self.small, batch, self.spec.objective)

    def save(self, folder: Path) -> None:
        """Write a Hugging Face directory."""
        save_llama(self.small, folder, self.spec.model_dir)

    def serving(self) -> CausalLMDraft:
        """Return a copy that drafts."""
        compute = serving_compute(self.base.norm.weight.device)
        copied = apply_compute(copy.deepcopy(self.small), compute)
        return CausalLMDraft(copied, self.base.config.vocab_size)


def train_causal_lm(
    spec: CausalLMSpec, on_progress: OnProgress = lambda row: None, resume: bool = False
) -> TrainReport:
    """Train a causal LM, as `train` does."""
    return train(spec, partial(CausalLMTrainee, spec), on_progress, resume)


def some_layers(depth: int) -> tuple[int, ...]:
    """Return the layers to keep of `depth` if none are named: both ends and the middle."""
    return tuple(sorted({n % depth for n in (0, 1, (depth - 1) // 2, -2, -1)}))


def check_layers(layers: tuple[int, ...], depth: int) -> None:
    """Raise BadInput unless `layers` are some of 0 to `depth` - 1."""
    if not layers or (bad := [n for n in layers if not 0 <= n < depth]):
        raise BadInput("layers", bad if layers else layers, f"name some of 0 to {depth - 1}")


def thin_out(model: Llama, layers: tuple[int, ...]) -> Llama:
    """Return a model of some of the layers of `model`; it shares their tensors."""
    check_layers(layers, model.config.num_layers)
    with torch.device("meta"):
        small = Llama(replace(model.config, num_layers=len(layers)))
    small.embed_tokens, small.norm, small.lm_head = model.embed_tokens, model.norm, model.lm_head
    small.layers = torch.nn.ModuleList(model.layers[n] for n in layers)
    return small


def next_token_loss(base: Llama, small: Llama, batch: Batch, objective: Objective) -> StepLoss:
    """Compare the small model with the base model wherever a token could be drafted."""
    flat = batch.tokens.flatten()
    rows = batch.positions + 1  # the first drafted token follows the true token
    with torch.no_grad():
        hidden = read_rows(base, batch.tokens)[0].flatten(0, 1)[rows]
        head = base.lm_head.weight.float()
        targets = distillation_targets(hidden, head, flat[rows + 1], objective)
    with torch.autocast(flat.device.type, dtype=torch.bfloat16, enabled=flat.is_cuda):
        exits = read_rows(small, batch.tokens)[0].flatten(0, 1)[rows].to(hidden.dtype)
    each = torch.arange(len(rows), device=rows.device)
    weights = torch.full_like(each, 1 / len(rows), dtype=torch.float32)
    parts = distillation_loss(exits, small.lm_head.weight, targets, each, weights, objective)
    return StepLoss.of(*parts, weights.unsqueeze(0), Stage(2, 1))
