"""Load a base model or a drafter from safetensors, checked before anything is moved.

Only safetensors and JSON are read; nothing is unpickled.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.drafter import Drafter, DrafterConfig
from tuner.engines.redrafter.llama import Llama
from tuner.errors import BadInput

_FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}


def load_llama(folder: Path) -> Llama:
    """Read the base model of a Hugging Face directory, on the CPU in its stored precision.

    Raises:
        BadInput: unsupported architecture, corrupt or incomplete checkpoint.
    """
    config = LlamaConfig.from_dir(folder)
    weights = _read_safetensors(folder, field="model")
    with torch.device("meta"):
        model = Llama(config)
    state = {name: _assemble(name, weights, config, folder) for name in model.state_dict()}
    _load(model, state, folder, field="model")
    return model


def load_drafter(folder: Path, base: LlamaConfig) -> Drafter:
    """Read a drafter directory and check that it fits `base`.

    Raises:
        BadInput: corrupt, incomplete, or made for another hidden size or vocabulary.
    """
    config = _read_drafter_config(folder)
    for what, theirs, ours in (
        ("hidden_size", config.hidden_size, base.hidden_size),
        ("vocab_size", config.vocab_size, base.vocab_size),
    ):
        if theirs != ours:
            raise BadInput(
                "drafter", str(folder), f"its {what} is {theirs}, the base model's is {ours}"
            )
    deepest = max(config.context_layers, default=0)
    if deepest > base.num_layers:
        raise BadInput(
            "drafter",
            str(folder),
            f"its context_layers name layer {deepest}, the base model has {base.num_layers}",
        )
    with torch.device("meta"):
        drafter = Drafter(config)
    _load(drafter, _read_safetensors(folder, field="drafter"), folder, field="drafter")
    if int(drafter.draft_vocab.max()) >= base.vocab_size:
        raise BadInput("drafter", str(folder), "its draft_vocab names tokens past the vocabulary")
    drafter.draft_vocab = drafter.draft_vocab.long()
    return drafter


def save_drafter(drafter: Drafter, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write config.json and drafter.safetensors into `folder`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        name: tensor.detach().to("cpu", dtype if tensor.is_floating_point() else torch.int32)
        for name, tensor in drafter.state_dict().items()
    }
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as scratch:
        contiguous = {name: tensor.contiguous() for name, tensor in state.items()}
        save_file(contiguous, str(Path(scratch) / "drafter.safetensors"), {"format": "pt"})
        drafter.config.save(Path(scratch))
        for name in ("drafter.safetensors", "config.json"):
            (Path(scratch) / name).replace(folder / name)


def _read_drafter_config(folder: Path) -> DrafterConfig:
    path = folder / "config.json"
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        raw.pop("model_type", None)
        raw["context_layers"] = tuple(raw.get("context_layers", ()))
        return DrafterConfig(**raw)
    except FileNotFoundError as error:
        raise BadInput("drafter", str(folder), "has no config.json") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInput("drafter", str(path), f"is not a drafter config ({error})") from error


def _assemble(name: str, weights: dict[str, Tensor], config: LlamaConfig, folder: Path) -> Tensor:
    """Return one of our tensors out of the checkpoint's, joining what we keep fused."""
    if name == "lm_head.weight":
        tied = config.tie_word_embeddings or "lm_head.weight" not in weights
        return _take(weights, "model.embed_tokens.weight" if tied else name, folder)
    for fused, parts in _FUSED.items():
        if fused in name:
            taken = [_take(weights, "model." + name.replace(fused, part), folder) for part in parts]
            return torch.cat(taken)
    return _take(weights, "model." + name, folder)


def _take(weights: dict[str, Tensor], name: str, folder: Path) -> Tensor:
    if name not in weights:
        raise BadInput("model", str(folder), f"lacks tensor {name!r}; the checkpoint is incomplete")
    return weights[name]


def _load(module: torch.nn.Module, state: dict[str, Tensor], folder: Path, field: str) -> None:
    expected = module.state_dict()
    missing = sorted(expected.keys() - state.keys())
    extra = sorted(state.keys() - expected.keys())
    if missing or extra:
        raise BadInput(field, str(folder), f"lacks tensors {missing} or has unknown {extra}")
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            raise BadInput(
                field,
                str(folder),
                f"tensor {name!r} has shape {list(tensor.shape)}, its config.json asks for "
                f"{list(expected[name].shape)}",
            )
    module.load_state_dict(state, assign=True)


def _read_safetensors(folder: Path, field: str) -> dict[str, Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise BadInput(field, str(folder), "holds no .safetensors file")
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    tensors[name] = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise BadInput(
                field, str(path), f"is not a readable safetensors file ({error})"
            ) from error
    return tensors
