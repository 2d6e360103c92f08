"""What one pass of a trial's base model reads and computes, from its checkpoint's config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profiles.records import MemorySplit, ModelShape, TrialConfig
from tuner.models import resolve_model

if TYPE_CHECKING:
    from tuner.engines.redrafter.config import LlamaConfig

_LINEAR_BYTES: dict[str, float] = {
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
    "int8_sq": 1,
    "int4_awq": 0.53,  # with a scale and a zero point for every 128 weights
}


def model_shape(config: TrialConfig, precision: str, memory: MemorySplit) -> ModelShape:
    """Read the shape of `config.model`; `memory` says how many bytes the engine really holds.

    Raises:
        BadInput: no model by that name, or an architecture that our engine does not know.
    """
    from tuner.engines.redrafter.config import LlamaConfig
    from tuner.engines.redrafter.engine import pick_device
    from tuner.engines.redrafter.kv_cache import kept_dtype, position_bytes
    from tuner.engines.redrafter.linear import compute_path

    llama = LlamaConfig.from_dir(resolve_model(config.model))
    compute = compute_path(precision, pick_device(config.device))
    kept = kept_dtype(config.kv_cache_dtype, compute.device, compute.activation_dtype)
    row_bytes = llama.hidden_size * compute.weight_dtype.itemsize
    table_bytes = row_bytes * llama.vocab_size
    shared = _head_is_the_table(llama, memory.weights_bytes - table_bytes, _LINEAR_BYTES[precision])
    return ModelShape(
        layers=llama.num_layers,
        hidden_size=llama.hidden_size,
        intermediate_size=llama.intermediate_size,
        heads=llama.num_heads,
        kv_heads=llama.num_kv_heads,
        head_dim=llama.head_dim,
        vocab_size=llama.vocab_size,
        linear_parameters=_inner_parameters(llama) + llama.vocab_size * llama.hidden_size,
        weights_read_bytes=memory.weights_bytes - (0 if shared else table_bytes),
        embedding_row_bytes=row_bytes,
        kv_bytes_per_token=position_bytes(llama, kept),
    )


def _inner_parameters(llama: LlamaConfig) -> int:
    """Parameters of the layers' matrix products."""
    query_width = llama.num_heads * llama.head_dim
    kv_width = llama.num_kv_heads * llama.head_dim
    attention = llama.hidden_size * 2 * (query_width + kv_width)
    return llama.num_layers * (attention + 3 * llama.hidden_size * llama.intermediate_size)


def _head_is_the_table(llama: LlamaConfig, rest_bytes: int, linear_bytes: float) -> bool:
    """Whether the LM head reads the embedding table itself, told by the bytes held beside it.

    A checkpoint may tie the two, and an engine may still hold the head apart, packed its own way.
    """
    head_bytes = linear_bytes * llama.vocab_size * llama.hidden_size
    inner_bytes = linear_bytes * _inner_parameters(llama)
    return llama.tie_word_embeddings and rest_bytes - inner_bytes < head_bytes / 2
