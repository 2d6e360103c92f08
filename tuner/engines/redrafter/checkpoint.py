"""Load a base model or a drafter from safetensors, checked before anything is moved, and save them.

Only safetensors and JSON are read; nothing is unpickled.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tuner.engines.redrafter import apple_layout
from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.drafter import Drafter, DrafterConfig
from tuner.engines.redrafter.fit import fit
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.quant.formats import layout_of
from tuner.engines.redrafter.quant.formats.install import install
from tuner.errors import BadInput

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
    "generation_config.json",
)  # fmt: skip


def load_llama(folder: Path) -> Llama:
    """Read the base model of a Hugging Face directory, on the CPU in its stored precision.

    Raises:
        BadInput: unsupported architecture or quantized layout, corrupt or incomplete checkpoint.
    """
    config = LlamaConfig.from_dir(folder)
    weights = _read_safetensors(folder, field="model")
    with torch.device("meta"):
        model = Llama(config)
    if layout := layout_of(folder):
        install(model, layout, weights, _parts)
    state = {
        name: _assemble(name, weights, config, folder) if tensor.is_meta else tensor
        for name, tensor in model.state_dict().items()
    }
    _load(model, state, folder, field="model")
    if state.get("lm_head.weight") is state["embed_tokens.weight"]:
        model.lm_head.weight = model.embed_tokens.weight  # one parameter, wherever it is moved
    return model


def save_llama(
    model: Llama, folder: Path, like: Path, dtype: torch.dtype | None = torch.bfloat16
) -> None:
    """Write `model` as a Hugging Face directory with the tokenizer of the directory `like`.

    Each file is written whole or not at all, and the one that makes it a model comes last. Weights
    are written as `dtype`; None: as they are.
    """
    config = model.config
    kv = config.num_kv_heads * config.head_dim
    sizes = {
        3: (config.num_heads * config.head_dim, kv, kv),
        2: (config.intermediate_size,) * 2,
    }
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        parts = _parts(name)
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        pieces = tensor.split(sizes[len(parts)]) if len(parts) > 1 else (tensor,)
        for part, piece in zip(parts, pieces, strict=True):
            tensors[part] = piece.detach().to("cpu", dtype).clone()  # a file shares no memory
    raw = json.loads((like / "config.json").read_text(encoding="utf-8"))
    raw.pop("layer_types", None)  # one entry a layer
    (raw.get("rope_parameters") or raw)["rope_theta"] = config.rope.theta
    raw |= config.shape_json()
    _write(folder, raw, "model.safetensors", tensors, like)


def load_drafter(folder: Path, base: LlamaConfig) -> Drafter:
    """Read a drafter directory, in our layout or Apple's, and check that it fits `base`.

    Raises:
        BadInput: corrupt, incomplete, not finite, or made for another hidden size, vocabulary or
            tokenizer.
    """
    drafter = read_drafter(folder)
    return fit(drafter, base, folder)


def read_drafter(folder: Path) -> Drafter:
    """Read a drafter directory on the CPU in its stored precision, whatever its base model.

    Raises:
        BadInput: corrupt, incomplete or not finite.
    """
    raw = _read_drafter_json(folder)
    config = _drafter_config(raw, folder)
    with torch.device("meta"):
        drafter = Drafter(config)
    state = _read_safetensors(folder, field="drafter")
    if apple_layout.is_apple(raw):
        state = apple_layout.canonical(state)
        _check(state, apple_layout.tensor_shapes(config), folder, field="drafter")
        state = apple_layout.to_ours(state, config)
    _check_finite(state, folder)
    _load(drafter, state, folder, field="drafter")
    drafter.draft_vocab = drafter.draft_vocab.long()
    return drafter


def read_drafter_config(folder: Path) -> DrafterConfig:
    """Read the config of a drafter directory, in our layout or Apple's. Raises BadInput."""
    return _drafter_config(_read_drafter_json(folder), folder)


def save_drafter(
    drafter: Drafter, folder: Path, dtype: torch.dtype | None = torch.bfloat16
) -> None:
    """Write config.json and drafter.safetensors into `folder`, each whole or not at all.

    Weights are written as `dtype`; None: as they are.
    """
    state = {
        name: tensor.detach().to("cpu", dtype if tensor.is_floating_point() else torch.int32)
        for name, tensor in drafter.state_dict().items()
    }
    _write(folder, drafter.config.to_json(), "drafter.safetensors", state)


def export_for_apple(drafter: Drafter, folder: Path) -> list[str]:
    """Write `drafter` in Apple's layout, in its stored precision; return what changes there.

    Raises:
        BadInput: a setting that the layout cannot express.
    """
    exported = apple_layout.from_ours(drafter)
    _write(folder, exported.config, "model.safetensors", exported.tensors)
    return exported.changes


def _write(
    folder: Path,
    config: dict[str, Any],
    name: str,
    state: dict[str, Tensor],
    tokenizer: Path | None = None,
) -> None:
    """Write a model, with the tokenizer of a directory if one is given."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as scratch:
        contiguous = {key: tensor.contiguous() for key, tensor in state.items()}
        save_file(contiguous, str(Path(scratch) / name), {"format": "pt"})
        text = json.dumps(config, indent=2) + "\n"
        (Path(scratch) / "config.json").write_text(text, encoding="utf-8")
        copied = [tokenizer / name for name in _TOKENIZER_FILES] if tokenizer else []
        for path in filter(Path.is_file, copied):
            shutil.copyfile(path, Path(scratch) / path.name)
        for path in sorted(Path(scratch).iterdir(), key=lambda p: p.name == "config.json"):
            path.replace(folder / path.name)


def _drafter_config(raw: dict[str, Any], folder: Path) -> DrafterConfig:
    try:
        return apple_layout.read_config(raw) if apple_layout.is_apple(raw) else _our_config(raw)
    except KeyError as error:
        raise BadInput("drafter", str(folder), f"its config.json lacks {error}") from error
    except (ValueError, TypeError) as error:
        raise BadInput(
            "drafter", str(folder / "config.json"), f"is not a drafter config ({error})"
        ) from error


def _read_drafter_json(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput("drafter", str(folder), "has no config.json") from error
    except ValueError as error:
        raise BadInput("drafter", str(path), f"is not a drafter config ({error})") from error
    if not isinstance(raw, dict):
        raise BadInput("drafter", str(path), "is not a drafter config (no JSON object)")
    return raw


def _our_config(raw: dict[str, Any]) -> DrafterConfig:
    fields = {name: value for name, value in raw.items() if name != "model_type"}
    fields["context_layers"] = tuple(fields.get("context_layers", ()))
    return DrafterConfig(**fields)


def _check_finite(state: dict[str, Tensor], folder: Path) -> None:
    for name, tensor in state.items():
        if not bool(tensor.isfinite().all()):
            raise BadInput(
                "drafter",
                str(folder),
                f"tensor {name!r} holds NaN or infinity; its training diverged, train it again",
            )


def _parts(name: str) -> list[str]:
    """Return the checkpoint's names of what one of our modules or tensors joins."""
    if name.startswith("lm_head"):
        return [name]
    for fused, parts in _FUSED.items():
        if fused in name:
            return ["model." + name.replace(fused, part) for part in parts]
    return ["model." + name]


def _assemble(name: str, weights: dict[str, Tensor], config: LlamaConfig, folder: Path) -> Tensor:
    """Return one of our tensors out of the checkpoint's, joining what we keep fused."""
    if name == "lm_head.weight":
        tied = config.tie_word_embeddings or "lm_head.weight" not in weights
        return _take(weights, "model.embed_tokens.weight" if tied else name, folder)
    taken = [_take(weights, part, folder) for part in _parts(name)]
    return taken[0] if len(taken) == 1 else torch.cat(taken)


def _take(weights: dict[str, Tensor], name: str, folder: Path) -> Tensor:
    if name not in weights:
        raise BadInput("model", str(folder), f"lacks tensor {name!r}; the checkpoint is incomplete")
    return weights[name]


def _load(module: torch.nn.Module, state: dict[str, Tensor], folder: Path, field: str) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    _check(state, shapes, folder, field)
    module.load_state_dict(state, assign=True)


def _check(
    state: dict[str, Tensor], shapes: dict[str, tuple[int, ...]], folder: Path, field: str
) -> None:
    """Raise unless `state` holds exactly the tensors of `shapes`."""
    missing = sorted(shapes.keys() - state.keys())
    extra = sorted(state.keys() - shapes.keys())
    if missing or extra:
        raise BadInput(field, str(folder), f"lacks tensors {missing} or has unknown {extra}")
    for name, tensor in state.items():
        if tensor.shape != shapes[name]:
            raise BadInput(
                field,
                str(folder),
                f"tensor {name!r} has shape {list(tensor.shape)}, its config.json asks for "
                f"{list(shapes[name])}",
            )


def _no_safetensors(pickles: list[str]) -> str:
    if not pickles:
        return "holds no .safetensors file"
    return f"holds {', '.join(pickles)}: pickles are never opened; save it as safetensors"


def _read_safetensors(folder: Path, field: str) -> dict[str, Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickles = [path.name for path in sorted(folder.glob("*")) if path.suffix in _PICKLES]
        raise BadInput(field, str(folder), _no_safetensors(pickles))
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
