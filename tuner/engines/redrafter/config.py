"""What a Llama-architecture checkpoint says of itself, checked.

Reads both spellings of rotary settings: `rope_theta` with `rope_scaling` (transformers 4) and
`rope_parameters` (transformers 5).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.errors import BadInput

SUPPORTED_ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM")
SUPPORTED_ROPE = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: base frequency and, for long contexts, how it is stretched."""

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Shape of a decoder with RMSNorm, rotary attention (GQA) and SwiGLU."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position: int
    rope: RopeConfig
    tie_word_embeddings: bool
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    folder: Path | None = None  # where it was read from, and the tokenizer is

    @classmethod
    def from_dir(cls, folder: Path) -> LlamaConfig:
        """Read `config.json` of a Hugging Face directory.

        Raises:
            BadInput: unreadable, incomplete, or an architecture or rotary scaling not supported.
        """
        raw = _read_json(folder / "config.json")
        architecture = (raw.get("architectures") or ["(none named)"])[0]
        if architecture not in SUPPORTED_ARCHITECTURES:
            raise BadInput(
                "architecture", architecture, f"use one of {', '.join(SUPPORTED_ARCHITECTURES)}"
            )
        try:
            return replace(_parse(raw, architecture), folder=folder)
        except KeyError as error:
            raise BadInput(
                "config.json", str(folder), f"lacks {error.args[0]!r}; the checkpoint is incomplete"
            ) from error

    def shape_json(self) -> dict[str, Any]:
        """Return what `config.json` says of the shape; rotary scaling and biases are not in it."""
        return {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "rms_norm_eps": self.rms_norm_eps,
            "tie_word_embeddings": self.tie_word_embeddings,
        }


def _parse(raw: dict[str, Any], architecture: str) -> LlamaConfig:
    if raw.get("hidden_act", "silu") != "silu":
        raise BadInput("hidden_act", raw["hidden_act"], "only silu is supported")
    if raw.get("use_sliding_window"):
        raise BadInput("use_sliding_window", True, "sliding-window attention is not supported")
    heads = raw["num_attention_heads"]
    llama_bias = bool(raw.get("attention_bias", False))
    return LlamaConfig(
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_layers=raw["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        rms_norm_eps=raw["rms_norm_eps"],
        max_position=raw["max_position_embeddings"],
        rope=_parse_rope(raw),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=llama_bias or architecture == "Qwen2ForCausalLM",
        output_bias=llama_bias,
        mlp_bias=bool(raw.get("mlp_bias", False)),
    )


def _parse_rope(raw: dict[str, Any]) -> RopeConfig:
    settings = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = settings.get("rope_theta", raw.get("rope_theta", 10_000.0))
    kind = settings.get("rope_type", settings.get("type", "default"))
    if kind not in SUPPORTED_ROPE:
        raise BadInput("rope_type", kind, f"use one of {', '.join(SUPPORTED_ROPE)}")
    if kind == "llama3":
        return RopeConfig(
            theta=theta,
            kind=kind,
            factor=settings["factor"],
            low_freq_factor=settings["low_freq_factor"],
            high_freq_factor=settings["high_freq_factor"],
            original_max_position=settings["original_max_position_embeddings"],
        )
    return RopeConfig(theta=theta, kind=kind, factor=settings.get("factor", 1.0))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput("model", str(path), "does not exist") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadInput("model", str(path), f"is not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise BadInput("model", str(path), "is not a JSON object")
    return value
