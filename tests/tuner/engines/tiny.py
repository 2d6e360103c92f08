"""A tiny random Llama and drafter on disk: the real formats, in milliseconds."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from tuner.engines.redrafter.drafter import Drafter, DrafterConfig

VOCAB, HIDDEN = 24, 32


def save_tiny_llama(folder: Path, vocab: int = VOCAB, **overrides: object) -> Path:
    """Write a random two-layer Llama with grouped-query attention through transformers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    settings: dict[str, object] = {
        "vocab_size": vocab,
        "hidden_size": HIDDEN,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.4,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    settings.update(overrides)
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.save_pretrained(folder)
    return folder


def save_tiny_drafter(
    folder: Path, vocab: int = VOCAB, scale: float = 1.0, seed: int = 0, **overrides: object
) -> Path:
    """Write a random drafter that fits `save_tiny_llama`."""
    settings: dict[str, object] = {
        "hidden_size": HIDDEN,
        "vocab_size": vocab,
        "exit_dim": HIDDEN,
        "num_blocks": 1,
        "draft_vocab_size": vocab,
        "trained_draft_len": 6,
    }
    settings.update(overrides)
    torch.manual_seed(seed)
    drafter = Drafter(DrafterConfig(**settings))  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(drafter.config.to_json()))
    state = {
        name: tensor * scale if tensor.is_floating_point() else tensor
        for name, tensor in drafter.state_dict().items()
    }
    save_file(state, str(folder / "model.safetensors"))
    return folder


def edit_config(folder: Path, **changes: object) -> None:
    """Change fields of a saved config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
