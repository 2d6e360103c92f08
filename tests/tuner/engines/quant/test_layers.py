"""Codes and scales of every kind: how near they come, and that fast products meet the reference."""

from __future__ import annotations

import pytest
import torch

from tuner.engines.redrafter.quant import humming
from tuner.engines.redrafter.quant.fp8 import Fp8Linear
from tuner.engines.redrafter.quant.int4 import Int4Linear, TinygemmLinear, pack, unpack
from tuner.engines.redrafter.quant.int8 import Int8Linear, IntMmLinear
from tuner.engines.redrafter.quant.kernels import fast_linear
from tuner.errors import BadInput, EngineFailure

KINDS = (Fp8Linear, Int8Linear, Int4Linear)


@pytest.fixture
def weight():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(96, 256, generator=generator) * torch.logspace(-3, 0, 96).unsqueeze(1)


@pytest.fixture
def x():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(5, 256, generator=generator) * torch.tensor([[1.0], [9], [0], [0.01], [3]])


@pytest.mark.parametrize(
    ("kind", "bound"), [(Fp8Linear, 2**-4), (Int8Linear, 0.505 / 127), (Int4Linear, 2.02 / 15)]
)
def test_no_weight_moves_by_more_than_its_kind_allows(weight, kind, bound):
    """Half a step of e4m3 (relative to the number) and of int8; a step of int4 where it clamps."""
    layer = kind.from_float(weight)
    error = (layer.dequantized() - weight).abs()
    smallest = weight.abs().amax(1, keepdim=True) / 448 * 2**-9
    allowed = {
        Fp8Linear: weight.abs().clamp(min=1e-12) * bound + smallest,
        Int8Linear: weight.abs().amax(1, keepdim=True) * bound,
        Int4Linear: weight.abs().unflatten(1, (-1, 128)).amax(2).repeat_interleave(128, 1) * bound,
    }[kind]
    assert bool((error <= allowed).all())


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_is_near_the_exact_product(weight, x, kind):
    bias = torch.linspace(-1, 1, 96)
    exact = x @ weight.t() + bias
    ours = kind.from_float(weight, bias)(x)
    error = (ours - exact).norm() / exact.norm()
    assert error < {Fp8Linear: 0.05, Int8Linear: 0.02, Int4Linear: 0.15}[kind]
    assert torch.equal(ours[2], kind.from_float(weight, bias)(x[2:3])[0])  # a token alone
    assert bool(ours.isfinite().all())


@pytest.mark.parametrize("kind", KINDS)
def test_joined_layers_give_both_outputs(weight, x, kind):
    parts = [kind.from_float(weight[:32]), kind.from_float(weight[32:])]
    joined = kind.joined(parts)
    assert (joined.out_features, joined.in_features) == (96, 256)
    torch.testing.assert_close(joined(x), torch.cat([part(x) for part in parts], dim=-1))


@pytest.mark.parametrize("kind", KINDS)
def test_codes_and_scales_survive_a_change_of_dtype(weight, kind):
    layer = kind.from_float(weight)
    before = layer.dequantized()
    layer.to(torch.float16)
    assert torch.equal(layer.dequantized(), before)


@pytest.mark.parametrize("rows", [1, 16, 17])
def test_tinygemm_meets_the_reference(weight, rows):
    layer = Int4Linear.from_float(weight, torch.linspace(-1, 1, 96))
    x = torch.randn(rows, 256, generator=torch.Generator().manual_seed(2)).bfloat16()
    expected = layer(x.float())
    error = (TinygemmLinear(layer)(x).float() - expected).norm() / expected.norm()
    assert error < 0.01


def test_packing_keeps_every_code_lowest_bits_first():
    codes = torch.arange(16, dtype=torch.uint8).repeat(2, 1)
    assert pack(codes)[0, 0].item() == 0x76543210
    assert torch.equal(unpack(pack(codes)), codes)


@pytest.mark.parametrize(("inputs", "group"), [(256, 128), (576, 64), (96, 32)])
def test_the_largest_group_that_divides_is_taken(inputs, group):
    assert Int4Linear.from_float(torch.randn(8, inputs)).group_size == group


def test_inputs_that_no_group_divides_are_refused():
    with pytest.raises(BadInput, match="groups of 128, 64, 32 inputs do not divide a layer of 40"):
        Int4Linear.from_float(torch.randn(8, 40))


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_of_zeros_stays_zero(kind):
    layer = kind.from_float(torch.zeros(32, 128))
    assert not layer(torch.ones(2, 128)).any()


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["torch", "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_of_zeros_stays_zero_on_cuda(kind, kernel):
    fast = fast_linear(kind.from_float(torch.zeros(512, 512, device="cuda")), kernel)
    assert not fast(torch.ones(2, 512, device="cuda", dtype=torch.bfloat16)).any()


def test_torch_multiplies_what_humming_kernels_cannot(monkeypatch, caplog):
    def cannot(linear):
        raise EngineFailure("no tile for 64 x 32")

    monkeypatch.setattr(humming, "multiplies", lambda linear: True)
    monkeypatch.setattr(humming, "HummingLinear", cannot)
    layer = Int8Linear.from_float(torch.zeros(32, 64)).to("meta")
    assert isinstance(fast_linear(layer), IntMmLinear)
    assert "no tile for 64 x 32; torch multiplies instead" in caplog.text
    with pytest.raises(EngineFailure, match="no tile"):
        fast_linear(layer, "humming")  # asked for by name


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 16, 17, 64, 300])
@pytest.mark.parametrize("kernel", ["torch", "auto", "humming"])
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_products_meet_the_reference_in_a_graph_too(kind, kernel, rows):
    if kernel == "humming" and not humming.installed():
        pytest.skip("humming-kernels is not installed")
    layer = kind.from_float(torch.randn(1024, 512, device="cuda").bfloat16())
    fast = fast_linear(layer, kernel)
    x = torch.zeros(rows, 512, device="cuda", dtype=torch.bfloat16)
    with torch.inference_mode():
        fast(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = fast(x)
        x.copy_(torch.randn(rows, 512, device="cuda"))
        graph.replay()
        expected = layer(x).float()
    error = (out.float() - expected).norm() / expected.norm()
    assert error < (0.04 if kind is Fp8Linear else 0.015)
