"""Make a small causal LM out of the base model: some of its layers, then trained on its answers.

The embedding and the head stay the base model's; layers and norm learn to do with few what all did.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from tuner.engines.redrafter.checkpoint import load_llama
from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.drafters.training_loop import LoopReport, LoopSpec, OnStep, run_loop
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch import Batch, BatchReader
from tuner.engines.redrafter.training.forward import load_frozen, read_rows
from tuner.engines.redrafter.training.loss import Objective, distillation_loss, distillation_targets
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.errors import BadInput

_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
    "generation_config.json",
)  # fmt: skip


def train_causal_lm(
    model_dir: Path,
    out: Path,
    layers: tuple[int, ...],
    spec: LoopSpec,
    on_step: OnStep = lambda step, loss: None,
) -> LoopReport:
    """Train a drafter of the base model's `layers`, counted from 0, and write it to `out`.

    Raises:
        BadInput: a layer that the model lacks, or data that do not fit.
    """
    device = torch.device(spec.device)
    torch.manual_seed(spec.seed)
    rows = AnswerRows.load(spec.data)
    base = load_frozen(model_dir, device, rows.longest)
    rows.check_tokens(base.config.vocab_size, spec.data)
    small = thin_out(load_llama(model_dir), layers).float().to(device)
    small.rotation = base.rotation
    for frozen in (small.embed_tokens, small.lm_head):
        frozen.requires_grad_(False)

    def loss_of(batch: Batch) -> Tensor:
        return next_token_loss(base, small, batch, spec.objective)

    batches = BatchReader(rows, spec.tokens_per_step, spec.seed, device)
    report = run_loop(small, batches, loss_of, spec, on_step)
    save_llama(small, model_dir, out)
    return report


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


def next_token_loss(base: Llama, small: Llama, batch: Batch, objective: Objective) -> Tensor:
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
    loss, *_ = distillation_loss(exits, small.lm_head.weight, targets, each, weights, objective)
    return loss


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
