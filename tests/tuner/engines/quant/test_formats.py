"""Checkpoints in the layouts that people download, read code by code."""

from __future__ import annotations

import pytest
import torch

from tests.tuner.engines.quant import stored
from tests.tuner.engines.quant.reading import logits_of
from tests.tuner.engines.tiny import save_tiny_llama
from tuner.engines.redrafter.checkpoint import load_llama
from tuner.engines.redrafter.linear import apply_compute, compute_path
from tuner.engines.redrafter.quant.layer import QuantizedLinear
from tuner.errors import BadInput

CASES = {
    "compressed-tensors fp8": (
        stored.compressed("float-quantized", "float", 8, "channel"),
        stored.fp8_rows,
        "fp8",
    ),
    "compressed-tensors int8": (
        stored.compressed("int-quantized", "int", 8, "channel"),
        stored.int8_rows,
        "int8_sq",
    ),
    "compressed-tensors int4": (
        stored.compressed("pack-quantized", "int", 4, "group", symmetric=False),
        stored.int4_packed,
        "int4_awq",
    ),
    "compressed-tensors int4 symmetric": (
        stored.compressed("pack-quantized", "int", 4, "group"),
        stored.int4_symmetric,
        "int4_awq",
    ),
    "awq": (stored.AWQ, stored.awq, "int4_awq"),
    "fp8 one scale": (stored.FP8, stored.fp8_tensor, "fp8"),
    "fp8 blocks": (stored.BLOCKS, stored.fp8_blocks, None),
}


@pytest.fixture
def folder(tmp_path):
    return save_tiny_llama(tmp_path / "llama")


@pytest.mark.parametrize("case", CASES)
def test_every_layer_stands_for_what_was_stored(folder, case):
    settings, store, precision = CASES[case]
    expected = stored.requantize(folder, settings, store)
    model = load_llama(folder)
    attention = [expected[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qkv"]
    qkv, down = model.layers[1].self_attn.qkv_proj, model.layers[1].mlp.down_proj
    if precision is None:
        assert not any(isinstance(m, QuantizedLinear) for m in model.modules())
        torch.testing.assert_close(qkv.weight, torch.cat(attention).bfloat16())
        return
    assert qkv.precision == down.precision == precision
    torch.testing.assert_close(qkv.dequantized(), torch.cat(attention), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(
        down.dequantized(), expected["model.layers.1.mlp.down_proj.weight"], rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("case", CASES)
def test_read_for_another_precision_it_is_the_same_model_with_wide_weights(folder, case, tmp_path):
    settings, store, _ = CASES[case]
    plain = save_tiny_llama(tmp_path / "plain")
    expected = stored.requantize(folder, settings, store)
    fp32 = compute_path("fp32", torch.device("cpu"))
    ours = apply_compute(load_llama(folder), fp32)
    theirs = load_llama(plain).float()
    for index, layer in enumerate(theirs.layers):
        for name, parts in (("self_attn.qkv", "qkv"), ("mlp.gate_up", ("gate", "up"))):
            prefix = f"model.layers.{index}.{name.split('.')[0]}."
            joined = torch.cat([expected[f"{prefix}{part}_proj.weight"] for part in parts])
            layer.get_submodule(name + "_proj").weight.data = joined
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            layer.get_submodule(name).weight.data = expected[f"model.layers.{index}.{name}.weight"]
    bf16_weights = 0.05 if case == "fp8 blocks" else 1e-4
    torch.testing.assert_close(
        logits_of(ours), logits_of(theirs), rtol=bf16_weights, atol=bf16_weights
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"quant_method": "gptq"}, "quant_method = 'gptq'"),
        ({**stored.AWQ, "version": "gemv"}, "version = 'gemv'.*use gemm"),
        ({**stored.AWQ, "bits": 3}, "bits = 3"),
        (stored.compressed("nvfp4-pack-quantized", "float", 4, "group"), "nvfp4-pack-quantized"),
        (stored.compressed("pack-quantized", "int", 8, "group"), "pack-quantized int8"),
        (stored.compressed("float-quantized", "float", 8, "block"), "strategy = 'block'"),
        (stored.compressed("int-quantized", "int", 8, "channel", symmetric=False), "symmetric"),
        (
            {
                **stored.compressed("int-quantized", "int", 8, "channel"),
                "sparsity_config": {"format": "sparse-24-bitmask"},
            },
            "sparse-24-bitmask",
        ),
        ({**stored.compressed("mixed", "int", 8, "channel"), "config_groups": {}}, "0 groups"),
    ],
)
def test_a_layout_that_is_not_read_is_refused_by_name(folder, settings, named):
    stored.requantize(folder, settings, stored.fp8_rows)
    with pytest.raises(BadInput, match=named):
        load_llama(folder)


def test_reordered_groups_are_refused(folder):
    def store(weight):
        tensors, meant = stored.int4_symmetric(weight)
        return {**tensors, "weight_g_idx": torch.arange(weight.shape[1])}, meant

    stored.requantize(folder, stored.compressed("pack-quantized", "int", 4, "group"), store)
    with pytest.raises(BadInput, match="actorder"):
        load_llama(folder)


def test_a_missing_tensor_is_named(folder):
    def store(weight):
        tensors, meant = stored.awq(weight)
        del tensors["scales"]
        return tensors, meant

    stored.requantize(folder, stored.AWQ, store)
    with pytest.raises(BadInput, match=r"layers\.0\.self_attn\.q_proj\.scales"):
        load_llama(folder)


def test_a_shape_that_config_json_does_not_ask_for_is_named(folder):
    stored.requantize(folder, stored.AWQ, stored.awq, intermediate_size=96)
    with pytest.raises(BadInput, match=r"mlp\.gate_up_proj.*\[128, 32\].*\[192, 32\]"):
        load_llama(folder)
