"""Keys and values kept in FP8: what is written, read, moved, and what it does to the text."""

from __future__ import annotations

import pytest
import torch

from tuner.engines.redrafter.config import LlamaConfig, RopeConfig
from tuner.engines.redrafter.kv_cache import E4M3, KVCache

CONFIG = LlamaConfig(
    vocab_size=24,
    hidden_size=32,
    intermediate_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    rms_norm_eps=1e-5,
    max_position=256,
    rope=RopeConfig(),
    tie_word_embeddings=True,
)
SLOTS = torch.tensor([17, 40, 3, 18])


@pytest.fixture(params=[None, E4M3], ids=["as read", "fp8"])
def cache(request) -> KVCache:
    return KVCache(CONFIG, 4, torch.device("cpu"), torch.float32, request.param)


def written(cache: KVCache, layer: int) -> torch.Tensor:
    """Write random keys and values; return what is to be read of them [2, T, kv_heads, dim]."""
    torch.manual_seed(layer)
    new = 3 * torch.randn(2, len(SLOTS), CONFIG.num_kv_heads, CONFIG.head_dim)
    new[0, 0, 0, 0] = 1e4
    cache.write(layer, SLOTS, *new)
    if cache.data.dtype == torch.float32:
        return new
    return new.clamp(-448, 448).to(E4M3).float()


def test_what_is_written_is_read(cache):
    want = [written(cache, layer) for layer in range(2)]
    for layer in range(2):
        picked = cache.read(layer, SLOTS.view(2, 2))
        assert picked.dtype == torch.float32
        assert torch.equal(picked.flatten(1, 2), want[layer])
        run = cache.read(layer, slice(17, 19))
        assert torch.equal(run.squeeze(1), want[layer][:, [0, 3]])
        others = torch.ones(len(cache.data[0, 0]), dtype=torch.bool)
        others[SLOTS] = False
        assert not cache.data[layer].float()[:, others].any()


def test_move_reads_everything_before_it_writes(cache):
    want = [written(cache, layer) for layer in range(2)]
    cache.move(SLOTS[[0, 1]], SLOTS[[1, 2]])
    for layer in range(2):
        assert torch.equal(
            cache.read(layer, SLOTS.unsqueeze(0)).squeeze(1), want[layer][:, [0, 0, 1, 3]]
        )


def test_fp8_takes_a_quarter_of_fp32():
    cpu = torch.device("cpu")
    narrow = KVCache(CONFIG, 4, cpu, torch.float32, E4M3)
    assert 4 * narrow.nbytes == KVCache(CONFIG, 4, cpu, torch.float32).nbytes
