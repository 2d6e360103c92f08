"""Keys and values kept in FP8: what is written, read, moved, and what it does to the text."""

from __future__ import annotations

import random

import pytest
import torch

from profiles.records import RequestRecord, TrialConfig
from tests.tuner.engines.tiny import VOCAB
from tuner.engines.base import Request
from tuner.engines.redrafter.config import LlamaConfig, RopeConfig
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.engines.redrafter.kv_cache import E4M3, KVCache, kept_dtype
from tuner.errors import UnsupportedConfig

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


def test_auto_is_as_activations_are_and_old_gpus_have_no_fp8(monkeypatch):
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "some GPU")
    for capability, able in (((8, 0), False), ((8, 9), True), ((9, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, c=capability: c)
        assert kept_dtype("auto", gpu, torch.bfloat16) == torch.bfloat16
        if able:
            assert kept_dtype("fp8", gpu, torch.bfloat16) == E4M3
        else:
            with pytest.raises(UnsupportedConfig, match="kv_cache_dtype = 'fp8': needs a GPU"):
                kept_dtype("fp8", gpu, torch.bfloat16)


def test_speculation_over_fp8_writes_what_plain_decoding_over_fp8_writes(tiny_llama, tiny_drafter):
    draw = random.Random(0)
    prompts = [tuple(draw.randrange(VOCAB) for _ in range(draw.randint(1, 20))) for _ in range(6)]
    requests = [Request(str(i), prompt, 24) for i, prompt in enumerate(prompts)]
    engine = RedrafterEngine()

    def serve(kv_cache_dtype: str, **tree: int) -> tuple[dict[str, list[int]], int]:
        config = TrialConfig(
            model=str(tiny_llama),
            drafter=str(tiny_drafter),
            device="cpu",
            quantization="fp32",
            kv_cache_dtype=kv_cache_dtype,
            batch_size=3,
            **tree,
        )
        prepared = engine.prepare(config, 64)
        assert ("KV cache in fp8" in prepared.compute) == (kv_cache_dtype == "fp8")
        records = [r for r in engine.serve(requests) if isinstance(r, RequestRecord)]
        return {r.id: r.output_token_ids for r in records}, engine.memory().kv_bytes

    drafted, narrow = serve("fp8", beam_width=4, draft_len=4)
    plain, _ = serve("fp8", beam_width=1, draft_len=0)
    exact, wide = serve("auto", beam_width=4, draft_len=4)
    engine.close()
    assert drafted == plain
    assert drafted != exact, "FP8 that changes nothing is not FP8"
    assert 4 * narrow == wide
