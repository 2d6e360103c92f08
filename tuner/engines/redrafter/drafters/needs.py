"""What a drafter will hold and ask for, told from its config.json before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from tuner.engines.redrafter.checkpoint import read_drafter_config
from tuner.engines.redrafter.config import SUPPORTED_ARCHITECTURES, LlamaConfig
from tuner.engines.redrafter.drafter import Drafter, DrafterConfig
from tuner.engines.redrafter.drafters.look_back import LookBack, read_look_back_config
from tuner.engines.redrafter.kv_cache import position_bytes
from tuner.engines.redrafter.linear import Compute
from tuner.engines.redrafter.weight_bytes import llama_bytes, plain_bytes
from tuner.models import resolve_model
from tuner.models.drafters import LOCAL_ATTENTION, is_retrieval, kind_of


@dataclass(frozen=True, slots=True)
class DrafterNeeds:
    """Bytes of a drafter and sizes of what it makes the engine hold; all 0 is no drafter."""

    nbytes: int = 0  # weights and memory of its own, on the device
    taps: int = 0  # hidden states that it reads beside the last one
    window: int = 0  # contexts that it wants to be told
    vocabulary: int = 0  # logits of a drafted token


def drafter_needs(
    drafter: str,
    base: LlamaConfig,
    compute: Compute,
    places: int,
    positions: int,
    draft_vocab_size: int | None = None,
) -> DrafterNeeds:
    """Return the needs of `drafter` beside `base`, with `places` requests of `positions` tokens.

    `compute` is the drafter's own.

    Raises:
        BadInput: nothing by that name, or a config that cannot be read.
    """
    if is_retrieval(drafter):
        return DrafterNeeds()
    folder = resolve_model(drafter)
    kind = kind_of(folder)
    if kind in SUPPORTED_ARCHITECTURES:
        return _causal_lm(LlamaConfig.from_dir(folder), compute, places, positions)
    if kind != LOCAL_ATTENTION:
        return _recurrent(_config(folder, base, draft_vocab_size), compute)
    config = _config(folder / "recurrent", base, draft_vocab_size)
    return _local_attention(folder, config, compute, places, positions)


def trained_draft_len(drafter: str) -> int | None:
    """Return the draft length that `drafter` was trained for; None: any. Raises BadInput."""
    if is_retrieval(drafter):
        return None
    folder = resolve_model(drafter)
    kind = kind_of(folder)
    if kind in SUPPORTED_ARCHITECTURES:
        return None
    recurrent = folder / "recurrent" if kind == LOCAL_ATTENTION else folder
    return read_drafter_config(recurrent).trained_draft_len


def _config(folder: Path, base: LlamaConfig, draft_vocab_size: int | None) -> DrafterConfig:
    """Read the config and cut its vocabulary to what `base` and the trial have."""
    config = read_drafter_config(folder)
    size = min(config.draft_vocab_size, base.vocab_size, draft_vocab_size or base.vocab_size)
    return replace(config, draft_vocab_size=size)


def _recurrent(config: DrafterConfig, compute: Compute) -> DrafterNeeds:
    with torch.device("meta"):
        drafter = Drafter(config)
    return DrafterNeeds(
        nbytes=plain_bytes(drafter, compute),
        taps=len(config.context_layers),
        vocabulary=config.draft_vocab_size,
    )


def _local_attention(
    folder: Path, config: DrafterConfig, compute: Compute, places: int, positions: int
) -> DrafterNeeds:
    looks = read_look_back_config(folder)
    with torch.device("meta"):
        look_back = LookBack(looks, config)
    ring = (1 + places) * looks.window * looks.num_heads * looks.head_dim
    kept = 2 * (ring + positions * looks.head_dim) * compute.activation_dtype.itemsize
    recurrent = _recurrent(config, compute)
    nbytes = recurrent.nbytes + plain_bytes(look_back, compute) + kept
    return replace(recurrent, nbytes=nbytes, window=looks.window)


def _causal_lm(config: LlamaConfig, compute: Compute, places: int, positions: int) -> DrafterNeeds:
    cache = (1 + places) * positions * position_bytes(config, compute.activation_dtype)
    return DrafterNeeds(llama_bytes(config, compute) + cache, vocabulary=config.vocab_size)
