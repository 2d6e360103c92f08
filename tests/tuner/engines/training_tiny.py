"""A tiny model with words for tokens and a chat template, and its own answers to learn from."""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
import torch
from safetensors.torch import save_file

from tuner.engines.redrafter.training.batch_decode import Decoding, decode
from tuner.engines.redrafter.training.forward import load_frozen
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.engines.redrafter.training.spec import TrainSpec

VOCAB, HIDDEN, STOP = 64, 32, 1
USER, BOT = 3, 4
CPU = torch.device("cpu")


def save_model(folder: Path) -> Path:
    """Write a Llama of two layers with random weights."""
    config = {
        "architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB, "hidden_size": HIDDEN,
        "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 1024,
        "tie_word_embeddings": False, "eos_token_id": STOP,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(5)
    tensors = {"embed_tokens": torch.randn(VOCAB, HIDDEN), "norm": torch.ones(HIDDEN)}
    for layer in range(2):
        for name, shape in {
            "self_attn.q_proj": (32, 32), "self_attn.k_proj": (16, 32),
            "self_attn.v_proj": (16, 32), "self_attn.o_proj": (32, 32),
            "mlp.gate_proj": (64, 32), "mlp.up_proj": (64, 32), "mlp.down_proj": (32, 64),
        }.items():  # fmt: skip
            tensors[f"layers.{layer}.{name}"] = torch.randn(shape) / shape[1] ** 0.5
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"layers.{layer}.{name}"] = torch.ones(HIDDEN)
    # Small layers and a head of its own: the next word depends mostly on the last one.
    state = {"lm_head.weight": torch.randn(VOCAB, HIDDEN)}
    state |= {f"model.{name}.weight": tensor for name, tensor in tensors.items()}
    save_file(state, str(folder / "model.safetensors"))
    _save_tokenizer(folder)
    return folder


def _save_tokenizer(folder: Path) -> None:
    words = {"<pad>": 0, "<end>": STOP, '"""': 2, "<user>": USER, "<bot>": BOT}
    words |= {f"w{i}": i for i in range(5, VOCAB)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w5"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "<user> {{ messages[0].content }} <end> <bot>"
    settings = {"eos_token": "<end>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def random_prompts(count: int, length: int, seed: int) -> list[list[int]]:
    """Random words, without the template."""
    chance = torch.Generator().manual_seed(seed)
    return torch.randint(5, VOCAB, (count, length), generator=chance).tolist()


def save_answers(model_dir: Path, path: Path, prompts: list[list[int]], tokens: int = 32) -> Path:
    """Write the model's greedy answers."""
    base = load_frozen(model_dir, CPU, 128)
    answers = decode(base, prompts, Decoding(tokens, frozenset([STOP]))).numpy()
    rows = AnswerRows.join([(p, a[a >= 0]) for p, a in zip(prompts, answers, strict=True)])
    rows.save(path)
    return path


def tiny_spec(model_dir: Path, answers: Path, out: Path, **changes: object) -> TrainSpec:
    """A training of a second or two."""
    settings: dict[str, object] = {
        "model_dir": model_dir, "data": answers, "out": out, "draft_vocab_size": 60, "draft_len": 4,
        "context_layers": (1,), "context_width": 48, "num_context_blocks": 1,
        "tokens_per_step": 1024, "max_steps": 200, "warmup_steps": 10, "learning_rate": 3e-3,
    }  # fmt: skip
    return TrainSpec(**(settings | changes))  # type: ignore[arg-type]
