"""A drafter in FP8 beside a base model that is not: same text, other drafts, clear refusals."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from profiles.records import RequestRecord, StepRecord, TrialConfig
from tests.tuner.engines.quant import stored
from tests.tuner.engines.tiny import VOCAB, save_tiny_llama
from tuner.engines.base import Request
from tuner.engines.redrafter import linear
from tuner.engines.redrafter.drafters import load_draft_method
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.engines.redrafter.linear import Compute, compute_path, drafter_compute
from tuner.engines.redrafter.quant.layer import QuantizedLinear
from tuner.errors import BadInput, UnsupportedConfig

FP32 = compute_path("fp32", torch.device("cpu"))
FP8 = replace(FP32, precision="fp8")
WITH_WEIGHTS = ("recurrent", "local attention", "causal LM")


@pytest.fixture
def engine(monkeypatch):
    """An engine that takes the reference products, as if the CPU had its own."""
    monkeypatch.setattr(linear, "refused", lambda device, instead="": {})
    engine = RedrafterEngine()
    yield engine
    engine.close()


def nets(method):
    """The networks of a draft method."""
    found = (getattr(method, name, None) for name in ("drafter", "recurrent", "look_back", "model"))
    return [net for net in found if net is not None]


def config(tiny, kind, **knobs):
    fixed = {"model": str(tiny.model_dir), "device": "cpu", "quantization": "fp32"}
    return TrialConfig(**{**fixed, "drafter": tiny.names[kind], "batch_size": 3, **knobs})


def serve(engine, config):
    """Texts by request and the committed tokens of every step, and what the record will say."""
    draw = random.Random(2)
    requests = [Request(str(i), tuple(draw.choices(range(VOCAB), k=9)), 24) for i in range(6)]
    prepared = engine.prepare(config, 64)
    records = list(engine.serve(requests))
    texts = {r.id: r.output_token_ids for r in records if isinstance(r, RequestRecord)}
    return texts, [r.committed for r in records if isinstance(r, StepRecord)], prepared.compute


@pytest.mark.parametrize("kind", WITH_WEIGHTS)
def test_the_text_is_that_of_plain_decoding(engine, tiny, kind):
    expected, _, _ = serve(engine, config(tiny, kind).baseline())
    for width, length in ((1, 3), (4, 4)):
        knobs = {"beam_width": width, "draft_len": length, "drafter_quantization": "fp8"}
        text, committed, compute = serve(engine, config(tiny, kind, **knobs))
        assert text == expected
        assert any(max(step) > 1 for step in committed if step)
        assert compute.endswith("drafter: fp8 linear layers, the rest in float32")
        assert any(isinstance(m, QuantizedLinear) for m in nets(engine._drafter)[0].modules())
        assert not any(isinstance(m, QuantizedLinear) for m in engine._model.modules())


@pytest.mark.gpu
@pytest.mark.parametrize("kind", WITH_WEIGHTS)
def test_its_drafts_are_accepted_on_a_gpu(tiny, kind):
    engine = RedrafterEngine()
    knobs = {"device": "cuda", "quantization": "bf16", "drafter_quantization": "fp8"}
    _, committed, compute = serve(engine, config(tiny, kind, **knobs))
    engine.close()
    assert any(max(step) > 1 for step in committed if step)
    assert compute.endswith("drafter: fp8 linear layers, the rest in bfloat16")


def test_configs_that_differ_in_it_have_drafters_of_their_own(engine, tiny):
    wide = config(tiny, "recurrent")
    narrow = wide.model_copy(update={"drafter_quantization": "fp8"})
    drafters = []
    for each in (wide, narrow, narrow.model_copy(update={"beam_width": 2}), wide):
        engine.prepare(each, 64)
        drafters.append(engine._drafter)
    assert drafters[1] is drafters[2]
    assert drafters[0].nbytes == drafters[3].nbytes > 2 * drafters[1].nbytes
    assert "drafter" not in serve(engine, narrow.baseline())[2]


@pytest.mark.parametrize("kind", WITH_WEIGHTS)
def test_all_linear_layers_are_rounded_and_nothing_else(tiny, kind):
    names = tiny.names[kind], tiny.base, tiny.model_dir
    wide, narrow = (load_draft_method(*names, compute) for compute in (FP32, FP8))
    for exact, rounded in zip(nets(wide), nets(narrow), strict=True):
        layers = dict(rounded.named_modules())
        for name, module in exact.named_modules():
            if not isinstance(module, torch.nn.Linear):
                assert type(layers[name]) is type(module)
                continue
            error = (layers[name].dequantized() - module.weight).norm() / module.weight.norm()
            assert 0 < error < 0.05


@torch.inference_mode()
def test_the_vocabulary_is_cut_before(tiny):
    names = tiny.names["recurrent"], tiny.base, tiny.model_dir
    whole, cut = (load_draft_method(*names, FP8, size).drafter for size in (None, 8))
    assert torch.equal(cut.head.codes, whole.head.codes[:8])
    assert torch.equal(cut.draft_vocab, whole.draft_vocab[:8])


def test_retrieval_refuses(engine, tiny):
    with pytest.raises(BadInput, match="drafter_quantization = 'fp8': retrieval has no weights"):
        engine.prepare(config(tiny, "retrieval", drafter_quantization="fp8"), 64)


def test_a_causal_lm_stored_in_another_precision_refuses(tiny, tmp_path):
    folder = save_tiny_llama(tmp_path / "awq")
    stored.requantize(folder, stored.AWQ, stored.awq)
    (folder / "tokenizer.json").symlink_to(tiny.model_dir / "tokenizer.json")
    load_draft_method(str(folder), tiny.base, tiny.model_dir, FP32)  # widened
    with pytest.raises(BadInput, match="drafter_quantization = 'fp8': its checkpoint is quantized"):
        load_draft_method(str(folder), tiny.base, tiny.model_dir, FP8)


def test_what_the_base_model_is_refused_the_drafter_is_too(tiny, monkeypatch):
    asked = config(tiny, "recurrent", drafter_quantization="fp8")
    with pytest.raises(
        UnsupportedConfig, match=r"drafter_quantization = 'fp8': .*8\.9.*CPU, leave it out"
    ):
        RedrafterEngine().prepare(asked, 64)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "RTX 3090")
    bf16 = Compute("bf16", torch.device("cuda"), torch.bfloat16, torch.bfloat16, packed=False)
    with pytest.raises(
        UnsupportedConfig, match=r"drafter_quantization = 'fp8': .*3090 has 8\.6; leave it out"
    ):
        drafter_compute(bf16, "fp8")


def test_only_what_the_products_take_is_computed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    gpu = torch.device("cuda")
    bf16 = Compute("bf16", gpu, torch.bfloat16, torch.bfloat16, packed=False)
    int4 = replace(bf16, precision="int4_awq")
    assert drafter_compute(bf16, "fp8") == drafter_compute(int4, "fp8")
    assert drafter_compute(int4, None) == drafter_compute(bf16, None) == bf16
    with pytest.raises(UnsupportedConfig, match="base model in bf16 or quantized, not in fp32"):
        drafter_compute(Compute("fp32", gpu, torch.float32, torch.float32, packed=False), "fp8")
    with pytest.raises(UnsupportedConfig, match="'int4_awq': use fp8 or leave it out"):
        drafter_compute(bf16, "int4_awq")
