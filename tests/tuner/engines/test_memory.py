"""Memory that is predicted before anything is loaded, against what the engine then holds."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from profiles.records import TrialConfig
from tests.tuner.engines.tiny import VOCAB, save_tiny_drafter, save_tiny_llama
from tuner.engines.base import Request
from tuner.engines.redrafter import engine as engine_module
from tuner.engines.redrafter import linear as linear_module
from tuner.engines.redrafter.checkpoint import load_drafter, load_llama
from tuner.engines.redrafter.config import LlamaConfig, RopeConfig
from tuner.engines.redrafter.drafters.look_back import (
    LookBack,
    LookBackConfig,
    save_local_attention,
)
from tuner.engines.redrafter.engine import SHIPPED_DRAFTER, RedrafterEngine
from tuner.engines.redrafter.kv_cache import KVCache
from tuner.engines.redrafter.linear import Compute, apply_compute, compute_path, module_bytes
from tuner.engines.redrafter.memory import predict_memory
from tuner.engines.redrafter.quant.quantize import (
    HEAD,
    HEAD_STAYS,
    quantize,
    quantize_linears,
)
from tuner.engines.redrafter.weight_bytes import llama_bytes
from tuner.errors import OutOfMemory
from tuner.models import resolve_model

LLAMA_3_8B = LlamaConfig(128256, 4096, 14336, 32, 32, 8, 128, 1e-5, 8192, RopeConfig(), False)
CPU = torch.device("cpu")


def held(config: TrialConfig):
    """What was predicted, and what the engine says after prepare."""
    engine = RedrafterEngine()
    prepared = engine.prepare(config, 64)
    memory = engine.memory()
    engine.close()
    return prepared.memory_predicted, memory


def assert_exact(predicted, measured):
    for part in ("weights_bytes", "drafter_bytes", "kv_bytes"):
        assert getattr(predicted, part) == getattr(measured, part), part


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(
    ("shape", "kv_cache_dtype"),
    [
        ({}, "auto"),
        ({"tie_word_embeddings": False, "num_key_value_heads": 4}, "fp8"),
        ({"attention_bias": True, "mlp_bias": True, "head_dim": 16}, "auto"),
    ],
)
def test_exact_on_the_tiny_model(tmp_path, shape, precision, kv_cache_dtype):
    model = save_tiny_llama(tmp_path / "model", **shape)
    drafter = save_tiny_drafter(tmp_path / "drafter", draft_vocab_size=16, context_width=24)
    config = TrialConfig(
        model=str(model),
        drafter=str(drafter),
        device="cpu",
        quantization=precision,
        kv_cache_dtype=kv_cache_dtype,
        draft_vocab_size=12,
        beam_width=3,
        batch_size=5,
    )
    predicted, measured = held(config)
    assert_exact(predicted, measured)
    assert predicted.rest_bytes is None
    assert predicted.reason
    assert_exact(*held(config.baseline()))


def local_attention(folder: Path, base: Path) -> Path:
    recurrent = load_drafter(save_tiny_drafter(folder / "plain"), LlamaConfig.from_dir(base))
    torch.manual_seed(0)
    look_back = LookBack(LookBackConfig(window=48, num_heads=2, head_dim=8), recurrent.config)
    save_local_attention(recurrent, look_back, folder)
    return folder


def drafter_of(kind: str, tmp_path: Path) -> tuple[str, str]:
    """A tiny base model and the drafter of one kind, by name."""
    model = save_tiny_llama(tmp_path / "model")
    tokenizer = resolve_model("smollm2-135m") / "tokenizer.json"
    drafter = "retrieval"
    if kind == "recurrent":
        shape = {"context_layers": (1,), "context_width": 24, "recurrence": "gated"}
        drafter = str(save_tiny_drafter(tmp_path / "drafter", **shape))
    if kind == "local attention":
        drafter = str(local_attention(tmp_path / "drafter", model))
    if kind == "causal LM":
        drafter = str(save_tiny_llama(tmp_path / "drafter", vocab=49152))
        model = save_tiny_llama(tmp_path / "model", vocab=49152)
        for folder in (model, Path(drafter)):
            (folder / "tokenizer.json").symlink_to(tokenizer)
    return str(model), drafter


@pytest.mark.parametrize("kind", ["local attention", "causal LM", "retrieval"])
def test_exact_for_every_kind_of_drafter(tmp_path, kind):
    model, drafter = drafter_of(kind, tmp_path)
    fixed = {"model": model, "drafter": drafter, "device": "cpu", "quantization": "bf16"}
    assert_exact(*held(TrialConfig(**fixed, batch_size=3)))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["recurrent", "local attention", "causal LM"])
def test_exact_for_quantized_drafters(tmp_path, monkeypatch, kind, precision):
    monkeypatch.setattr(linear_module, "refused", lambda device, instead="": {})  # the reference
    model, drafter = drafter_of(kind, tmp_path)
    wide = TrialConfig(model=model, drafter=drafter, device="cpu", quantization=precision)
    narrow = wide.model_copy(update={"drafter_quantization": "fp8"})
    assert_exact(*held(narrow))
    assert held(narrow)[1].drafter_bytes != held(wide)[1].drafter_bytes


@pytest.mark.parametrize("precision", ["fp8", "int8_sq", "int4_awq"])
@pytest.mark.parametrize("stored", ["fp32", "bf16"])
@pytest.mark.parametrize("biased", [False, True])
def test_exact_for_quantized_weights(tmp_path, precision, stored, biased):
    model = save_tiny_llama(tmp_path / "model", attention_bias=biased, mlp_bias=biased)
    compute = replace(compute_path(stored, CPU), precision=precision)
    quantized = quantize(load_llama(model), compute, [tuple(range(VOCAB))])
    assert llama_bytes(LlamaConfig.from_dir(model), compute) == module_bytes(quantized)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_exact_on_the_builtin_model(builtin_model, precision):
    assert_exact(*held(TrialConfig(device="cpu", quantization=precision, batch_size=2)))


@pytest.mark.gpu
@pytest.mark.parametrize("drafter_quantization", [None, "fp8"])
@pytest.mark.parametrize(("precision", "kv_cache_dtype"), [("bf16", "auto"), ("fp8", "fp8")])
def test_exact_on_a_gpu_and_the_peak_is_near(
    builtin_model, precision, kv_cache_dtype, drafter_quantization
):
    fixed = {"quantization": precision, "kv_cache_dtype": kv_cache_dtype, "device": "cuda"}
    config = TrialConfig(**fixed, drafter_quantization=drafter_quantization, batch_size=4)
    predicted, measured = held(config)
    assert_exact(predicted, measured)
    assert predicted.peak_bytes == pytest.approx(measured.peak_bytes, rel=0.25)  # small things rule


@pytest.mark.parametrize("precision", ["fp8", "int8_sq", "int4_awq"])
def test_exact_on_the_builtin_model_quantized(builtin_model, precision):
    # What quantize() does but for the calibration, which changes no shape and takes a minute.
    compute = replace(compute_path("bf16", CPU), precision=precision)
    model = load_llama(builtin_model)
    quantize_linears(model.layers, precision)
    if precision not in HEAD_STAYS:
        quantize_linears(model, precision, only=(HEAD,))
    quantized = apply_compute(model, compute, keep_codes=True)
    assert llama_bytes(LlamaConfig.from_dir(builtin_model), compute) == module_bytes(quantized)


def test_a_tied_head_is_one_tensor_in_any_precision(builtin_model):
    config = LlamaConfig.from_dir(builtin_model)
    table = config.vocab_size * config.hidden_size
    fp32 = Compute("fp32", CPU, torch.float32, torch.float32, packed=False)
    untied = replace(config, tie_word_embeddings=False)
    assert llama_bytes(untied, fp32) - llama_bytes(config, fp32) == 4 * table


@pytest.fixture
def h200(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")

    def compute(precision: str) -> Compute:
        gpu = torch.device("cuda")
        return Compute(precision, gpu, torch.bfloat16, torch.bfloat16, packed=False)

    return compute


@pytest.mark.parametrize(
    ("precision", "billions"), [("bf16", 16.06), ("fp8", 8.56), ("int8_sq", 8.56)]
)
def test_weights_of_an_8b_on_a_gpu(h200, precision, billions):
    assert llama_bytes(LLAMA_3_8B, h200(precision)) == pytest.approx(billions * 1e9, rel=1e-3)


def test_parts_grow_with_what_they_are_made_of(h200, tmp_path):
    drafter = str(save_tiny_drafter(tmp_path, vocab=128256, hidden_size=4096))

    def predict(**knobs: object):
        config = TrialConfig(drafter=drafter, **knobs)
        return predict_memory(LLAMA_3_8B, drafter, config, h200("bf16"), 2000)

    one, many = predict(batch_size=1), predict(batch_size=32)
    narrow = predict(batch_size=32, kv_cache_dtype="fp8")
    blocks = -(-2017 // 16)
    assert one.kv_bytes == (1 + blocks) * 16 * 131072  # 128 KiB a token
    assert many.kv_bytes == (1 + 32 * blocks) * 16 * 131072
    assert 2 * narrow.kv_bytes == many.kv_bytes
    assert one.weights_bytes == many.weights_bytes
    assert one.rest_bytes < many.rest_bytes < 400 * 2**20
    made = [
        m.peak_bytes - m.weights_bytes - m.drafter_bytes - m.kv_bytes - m.rest_bytes
        for m in (one, many)
    ]
    assert made[1] > 32 * 17 * 128256 * 2 > made[0]  # logits of every node, in bf16


def test_what_cannot_fit_is_refused_before_anything_is_loaded(tmp_path, monkeypatch):
    model = save_tiny_llama(tmp_path / "model")
    loaded = []
    monkeypatch.setattr("tuner.engines.redrafter.engine.load_computed", loaded.append)
    monkeypatch.setattr("tuner.engines.redrafter.engine._room", lambda device: 1 << 20)
    config = TrialConfig(model=str(model), device="cpu", draft_len=0, batch_size=512)
    words = r"batch_size = 512 needs .* \(weights .*, drafter 0 MiB, KV cache .*, 1 MiB are free"
    with pytest.raises(OutOfMemory, match=words) as caught:
        RedrafterEngine().prepare(config, 64)
    assert not loaded
    assert caught.value.predicted.kv_bytes > 1 << 20


def test_a_drafter_that_does_not_fit_while_it_is_quantized_is_refused(builtin_model, monkeypatch):
    monkeypatch.setattr(linear_module, "refused", lambda device, instead="": {})  # the reference
    wide = TrialConfig(device="cpu", quantization="bf16")
    narrow = wide.model_copy(update={"drafter_quantization": "fp8"})
    base, compute = LlamaConfig.from_dir(builtin_model), compute_path("bf16", CPU)
    before, after = (
        predict_memory(base, str(SHIPPED_DRAFTER), config, compute, 64) for config in (wide, narrow)
    )
    room = before.weights_bytes + before.drafter_bytes - 1
    assert after.weights_bytes + after.drafter_bytes + after.kv_bytes < room
    monkeypatch.setattr(engine_module, "_room", lambda device: room)
    with pytest.raises(OutOfMemory, match="weights and drafter while the drafter is quantized"):
        RedrafterEngine().prepare(narrow, 64)


def test_the_old_cache_is_gone_before_a_larger_one_is_made(monkeypatch, tmp_path):
    model, made = str(save_tiny_llama(tmp_path / "model")), []

    class Watched(KVCache):
        def __init__(self, *arguments) -> None:
            assert all(cache() is None for cache in made), "two caches at once"
            super().__init__(*arguments)
            made.append(weakref.ref(self))

    monkeypatch.setattr(engine_module, "KVCache", Watched)
    engine = RedrafterEngine()
    for batch_size in (1, 2, 4):
        config = TrialConfig(model=model, device="cpu", quantization="fp32", batch_size=batch_size)
        engine.prepare(config.baseline(), 64)
        list(engine.serve([Request("one", (5, 6, 7), 2)]))
    assert len(made) == 3
    engine.close()
