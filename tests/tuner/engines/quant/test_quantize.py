"""A whole model: calibrated, quantized, cached; and what cannot be is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from tests.tuner.engines.quant import stored
from tests.tuner.engines.quant.reading import logits_of
from tests.tuner.engines.tiny import save_tiny_llama
from tuner.engines.redrafter.checkpoint import load_llama
from tuner.engines.redrafter.drafter import Drafter, DrafterConfig
from tuner.engines.redrafter.linear import compute_path, module_bytes
from tuner.engines.redrafter.quant.calibrate import observe
from tuner.engines.redrafter.quant.fold import folds
from tuner.engines.redrafter.quant.int4 import Int4Linear
from tuner.engines.redrafter.quant.int8 import Int8Linear
from tuner.engines.redrafter.quant.kernels import describe_kernels
from tuner.engines.redrafter.quant.layer import QuantizedLinear
from tuner.engines.redrafter.quant.quantize import quantize, quantize_linears
from tuner.engines.redrafter.quant.smooth import awq_scale, smoothing_scale
from tuner.errors import BadInput

PROMPTS = [tuple((7 * i + j * j) % 24 for j in range(20)) for i in range(6)]
FP32 = compute_path("fp32", torch.device("cpu"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Eight times the usual hidden size, so that weights outweigh what is left in fp32."""
    return save_tiny_llama(
        tmp_path_factory.mktemp("quantize") / "llama",
        hidden_size=256,
        intermediate_size=512,
        initializer_range=0.06,
    )


@pytest.fixture(scope="module")
def exact(folder):
    return logits_of(load_llama(folder).float())


def quantized(folder, precision, **options):
    return quantize(load_llama(folder), replace(FP32, precision=precision), PROMPTS, **options)


@pytest.mark.parametrize(
    ("precision", "bound"), [("fp8", 0.12), ("int8_sq", 0.06), ("int4_awq", 0.4)]
)
def test_logits_stay_near(folder, exact, precision, bound):
    model = quantized(folder, precision)
    error = (logits_of(model) - exact).norm() / exact.norm()
    assert 1e-4 < error < bound
    assert "torch reference" in describe_kernels(model)


@pytest.mark.parametrize(("precision", "share"), [("fp8", 0.26), ("int8_sq", 0.26)])
def test_weights_take_a_byte_each(folder, precision, share):
    layers = module_bytes(load_llama(folder).float().layers)
    assert module_bytes(quantized(folder, precision).layers) < share * layers


def test_four_bits_leave_the_head_as_it_is(folder):
    assert isinstance(quantized(folder, "int4_awq").lm_head, torch.nn.Linear)
    assert isinstance(quantized(folder, "int8_sq").lm_head, QuantizedLinear)


@pytest.mark.parametrize(
    ("scale_of", "kind"), [(smoothing_scale, Int8Linear), (awq_scale, Int4Linear)]
)
@torch.no_grad()
def test_calibration_beats_plain_rounding_where_channels_differ(folder, scale_of, kind):
    """Every ninth channel is fifty times larger, as a few are in real models."""
    model = load_llama(folder).float()
    model.layers[0].input_layernorm.weight.data[::9] *= 50
    seen = observe(model, PROMPTS)["layers.0.self_attn.qkv_proj"]
    fold = folds(model, 0)[0]
    weight, x = fold.linear.weight, seen.sample

    def error(scale):
        return (kind.from_float(weight * scale)(x / scale) - x @ weight.t()).norm()

    assert error(scale_of(fold, seen)) < 0.7 * error(torch.ones(256))


def test_what_is_observed_is_what_the_layers_read(folder):
    model = load_llama(folder).float()
    read = []
    model.layers[1].mlp.down_proj.register_forward_pre_hook(lambda m, x: read.append(x[0]))
    seen = observe(model, PROMPTS[:2])["layers.1.mlp.down_proj"]
    rows = torch.cat(read)
    torch.testing.assert_close(seen.peak, rows.abs().amax(0))
    torch.testing.assert_close(seen.mean, rows.abs().mean(0))
    assert seen.sample.shape == (40, 512)


def test_scales_are_found_once_for_the_same_model_and_prompts(folder, tmp_path):
    first = quantized(folder, "int8_sq", model_dir=folder, cache=tmp_path)
    [about] = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert about["prompts"] == 6 and about["tokens"] == 120 and about["precision"] == "int8_sq"
    options = {"model_dir": folder, "cache": tmp_path}
    without_prompts = replace(FP32, precision="int8_sq")
    with pytest.raises(BadInput, match="at least one prompt"):
        quantize(load_llama(folder), without_prompts, [], **options)
    [kept] = tmp_path.glob("*.safetensors")
    written = kept.stat().st_mtime_ns
    again = quantized(folder, "int8_sq", **options)
    assert kept.stat().st_mtime_ns == written
    assert torch.equal(logits_of(again), logits_of(first))
    kept.write_bytes(b"cut short")
    repaired = quantized(folder, "int8_sq", **options)
    assert torch.equal(logits_of(repaired), logits_of(first))
    quantize(load_llama(folder), without_prompts, PROMPTS[:3], **options)
    assert len(list(tmp_path.glob("*.safetensors"))) == 2


def test_activations_that_are_not_finite_are_named(folder):
    model = load_llama(folder)
    model.layers[1].mlp.gate_up_proj.weight.data[0, 0] = float("nan")
    with pytest.raises(BadInput, match=r"calibration = 'layers\.1\.mlp\.down_proj'.*NaN"):
        quantize(model, replace(FP32, precision="int8_sq"), PROMPTS)


def test_groups_that_do_not_divide_are_refused(tmp_path):
    odd = save_tiny_llama(tmp_path / "odd", hidden_size=48, intermediate_size=64)
    with pytest.raises(BadInput, match="do not divide a layer of 48"):
        quantized(odd, "int4_awq")


@torch.no_grad()
def test_a_drafter_is_quantized_by_itself():
    torch.manual_seed(0)
    config = DrafterConfig(128, 24, 128, 2, 24, 4, context_layers=(1,), context_width=192)
    drafter = Drafter(config)
    context, embedding = torch.randn(4, 256), torch.randn(4, 128)

    def logits():
        p, d = drafter.start(context, embedding)
        return drafter.logits(p, drafter.next_state(embedding, torch.zeros(4, 128), d))

    exact = logits()
    quantize_linears(drafter, "fp8")
    assert not any(isinstance(module, torch.nn.Linear) for module in drafter.modules())
    assert 0 < (logits() - exact).norm() / exact.norm() < 0.1


def test_a_checkpoint_that_came_quantized_keeps_what_it_left_wide(tmp_path):
    folder = save_tiny_llama(tmp_path / "llama")
    settings = stored.compressed("float-quantized", "float", 8, "channel")
    stored.requantize(folder, settings, stored.fp8_rows)
    model = quantize(load_llama(folder), replace(FP32, precision="fp8"), prompts=())
    assert isinstance(model.lm_head, torch.nn.Linear)
    assert isinstance(model.layers[0].mlp.down_proj, QuantizedLinear)


def test_a_checkpoint_that_came_quantized_keeps_its_codes(tmp_path):
    folder = save_tiny_llama(tmp_path / "llama")
    stored.requantize(folder, stored.AWQ, stored.awq)
    codes = load_llama(folder).layers[0].mlp.down_proj.codes
    model = quantize(load_llama(folder), replace(FP32, precision="int4_awq"), prompts=())
    assert torch.equal(model.layers[0].mlp.down_proj.codes, codes)
    with pytest.raises(BadInput, match="stored in int4_awq; ask for that, or for bf16"):
        quantized(folder, "fp8")
