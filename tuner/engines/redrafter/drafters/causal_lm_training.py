"""Make a small causal LM out of the base model: some of its layers, then trained on its answers.

The embedding and the head stay the base model's; layers and norm learn to do with few what all did.
"""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from tuner.engines.redrafter.checkpoint import load_llama
from tuner.engines.redrafter.config import LlamaConfig
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

_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
    "generation_config.json",
)  # fmt: skip


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
        save_llama(self.small, self.spec.model_dir, folder)

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


def save_llama(model: Llama, like: Path, out: Path) -> None:
    """Write `model` as a Hugging Face directory with the tokenizer of the directory `like`."""
    raw = json.loads((like / "config.json").read_text(encoding="utf-8"))
    raw.pop("layer_types", None)  # one entry a layer
    raw["num_hidden_layers"] = model.config.num_layers
    out.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"model.{name}" if name != "lm_head.weight" else name: tensor.detach()
        .to("cpu", torch.bfloat16)
        .contiguous()
        .clone()
        for name, tensor in _parted(model)
    }
    with tempfile.TemporaryDirectory(dir=out, prefix=".saving-") as scratch:
        save_file(tensors, str(Path(scratch) / "model.safetensors"), {"format": "pt"})
        (Path(scratch) / "config.json").write_text(json.dumps(raw, indent=2), encoding="utf-8")
        for name in _TOKENIZER_FILES:
            if (like / name).is_file():
                shutil.copyfile(like / name, Path(scratch) / name)
        for path in sorted(Path(scratch).iterdir(), key=lambda p: p.name == "config.json"):
            path.replace(out / path.name)


def _parted(model: Llama) -> Iterator[tuple[str, Tensor]]:
    """Yield the model's tensors by their names in a checkpoint, where nothing is fused."""
    config: LlamaConfig = model.config
    kv = config.num_kv_heads * config.head_dim
    fused = {
        "qkv_proj": (("q_proj", "k_proj", "v_proj"), (config.num_heads * config.head_dim, kv, kv)),
        "gate_up_proj": (("gate_proj", "up_proj"), (config.intermediate_size,) * 2),
    }
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        for whole, (parts, sizes) in fused.items():
            if whole in name:
                pieces = zip(parts, tensor.split(sizes), strict=True)
                yield from ((name.replace(whole, part), piece) for part, piece in pieces)
                break
        else:
            yield name, tensor
