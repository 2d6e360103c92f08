"""Our INT4 products against what the codes stand for, on a GPU or in the interpreter."""

from __future__ import annotations

import os

import pytest
import torch
import torch.nn.functional as F

from tuner.engines.redrafter.kernels import int4_few_rows, stages
from tuner.engines.redrafter.kernels.compiled import can_compile, compile_for
from tuner.engines.redrafter.kernels.int4_order import ordered, scale_and_zero
from tuner.engines.redrafter.quant import humming
from tuner.engines.redrafter.quant.int4 import Int4Linear, OwnInt4Linear, pack, unpack
from tuner.engines.redrafter.quant.int8 import Int8Linear
from tuner.engines.redrafter.quant.kernels import fast_linear, held_bytes
from tuner.errors import EngineFailure

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
ROUNDING = 2**-7 if INTERPRETED else 2**-8  # the interpreter cuts bf16 off
needs_triton = pytest.mark.skipif(
    not (torch.cuda.is_available() or INTERPRETED),
    reason="needs an NVIDIA GPU, or Triton with TRITON_INTERPRET=1",
)
needs_nvrtc = pytest.mark.skipif(
    not can_compile(), reason="needs cuda-bindings and NVRTC, which are there on Linux"
)


def layer(outputs: int, inputs: int, bias: bool) -> Int4Linear:
    """Codes and zeros of every value, scales far apart."""
    torch.manual_seed(outputs + inputs)
    weight = torch.randn(outputs, inputs) * torch.logspace(-2, 0, outputs).unsqueeze(1)
    weight[:, :32] += 0.5
    return Int4Linear.from_float(weight, torch.randn(outputs) if bias else None).to(DEVICE)


def in_order(linear: Int4Linear) -> tuple[torch.Tensor, torch.Tensor]:
    codes = ordered(unpack(linear.codes), linear.group_size)
    return codes, scale_and_zero(linear.scale, linear.zero)


def close(got: torch.Tensor, exact: torch.Tensor, sizes: torch.Tensor) -> None:
    """`sizes`: of what was summed; fp32 sums err by it, bf16 outputs by their own size."""
    assert got.dtype == torch.bfloat16
    error = (got.float() - exact).abs()
    assert bool((error <= exact.abs() * ROUNDING * 1.01 + sizes * 2**-14).all())


def exact_product(linear: Int4Linear, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weight = linear.dequantized().double()
    out = x.double() @ weight.t()
    sizes = x.double().abs() @ weight.abs().t()
    if linear.bias is not None:
        out = out + linear.bias.double()
    return out.float(), sizes.float()


def test_a_half_word_holds_one_input_of_every_quarter():
    codes = torch.zeros(1, 256, dtype=torch.uint8)
    codes[0, 128 + 5 :: 32] = torch.tensor([1, 2, 3, 4], dtype=torch.uint8)
    halves = ordered(codes, 128).view(torch.int16)
    assert halves[0, 32 + 5] == 0x4321
    assert int(halves.count_nonzero()) == 1


def test_a_scale_stands_above_its_zero():
    scale, zero = torch.tensor([[0.5, -3.0]]), torch.tensor([[15, 0]], dtype=torch.uint8)
    joined = scale_and_zero(scale, zero)
    assert (joined & 0xFFFF).tolist() == [[15, 0]]
    assert torch.equal((joined & -65536).view(torch.float32), scale)


@needs_triton
@pytest.mark.parametrize(
    ("outputs", "inputs", "tile"),
    [
        (24, 4096, None),
        (13, 14336 // 8, (4, 4, 3, 2)),
        (20, 576, (8, 4, 2, 1)),
        (9, 192, (8, 1, 2, 1)),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_one_row(outputs, inputs, tile, bias):
    from tuner.engines.redrafter.kernels.int4_one_row import one_row

    linear = layer(outputs, inputs, bias)
    x = torch.randn(1, inputs, device=DEVICE)
    x[0, :32], x[0, 40] = 0.0, 300.0  # digits of nothing, and of an outlier
    x = x.bfloat16()
    got = one_row(x, *in_order(linear), linear.bias, tile=tile)
    close(got, *exact_product(linear, x))


@needs_triton
@pytest.mark.parametrize(("outputs", "inputs"), [(40, 512), (26, 576)])
def test_one_row_gated(outputs, inputs):
    from tuner.engines.redrafter.kernels.int4_one_row import one_row

    linear = layer(outputs, inputs, bias=True)
    x = torch.randn(1, inputs, device=DEVICE).bfloat16()
    got = one_row(x, *in_order(linear), linear.bias, gated=True).float()
    gate, up = exact_product(linear, x)[0].chunk(2, -1)
    want = F.silu(gate) * up
    assert float((got - want).norm() / want.norm()) < 0.02


@needs_triton
@pytest.mark.parametrize("rows", [2, 17, 70])
@pytest.mark.parametrize(
    ("outputs", "inputs", "tile"),
    [
        (80, 1024, None),
        (80, 1024, (32, 3, 4, 3)),
        (40, 576, (64, 4, 4, 2)),
        (40, 192, (32, 1, 4, 2)),
    ],
)
def test_several_rows(rows, outputs, inputs, tile):
    from tuner.engines.redrafter.kernels.int4_rows import multiply

    linear = layer(outputs, inputs, bias=rows == 17)
    x = torch.randn(rows, inputs, device=DEVICE).bfloat16()
    locks = torch.zeros(3, device=DEVICE, dtype=torch.int32)
    for _ in range(2):  # what the first leaves behind must not reach the second
        got = multiply(x, *in_order(linear), locks, linear.bias, tile=tile)
        close(got, *exact_product(linear, x))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [2, 8, 9, 17, 24])
@pytest.mark.parametrize(
    ("outputs", "inputs"),
    [(80, 4096), (40, 576), (24, 192), (4232, 1024), (2 * 4096, 14336)],
)
def test_a_few_rows(rows, outputs, inputs):
    linear = layer(outputs, inputs, bias=rows != 9)
    x = torch.randn(rows, inputs, device=DEVICE)
    x[:, 7] = 300.0
    x = x.bfloat16()
    exact = exact_product(linear, x)
    close(int4_few_rows.int4_few_rows(x, *in_order(linear), linear.bias), *exact)
    parts = int4_few_rows.int4_few_rows(x, *in_order(linear), linear.bias, joined=False)
    assert inputs < 14336 or parts.shape == (4, rows, outputs)
    close((parts.sum(0) if parts.dim() == 3 else parts).bfloat16(), *exact)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [2, 13, 23])
@pytest.mark.parametrize(("outputs", "inputs"), [(40, 512), (26, 576), (6144, 4096)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_few_rows_gated(rows, outputs, inputs, dtype):
    linear = layer(outputs, inputs, bias=True)
    linear.bias = linear.bias.to(dtype)
    x = torch.randn(rows, inputs, device=DEVICE).bfloat16()
    got = int4_few_rows.int4_few_rows(x, *in_order(linear), linear.bias, gated=True).float()
    gate, up = exact_product(linear, x)[0].chunk(2, -1)
    want = F.silu(gate) * up
    assert float((got - want).norm() / want.norm()) < 0.01


@pytest.mark.parametrize(
    ("cores", "room"), [(132, 231_424), (108, 165_888), (24, 100_352), (3, 100_352)]
)
@pytest.mark.parametrize("eights", [1, 2, 3])
def test_a_block_has_room_for_its_work_on_every_card(monkeypatch, cores, room, eights):
    for module in (int4_few_rows, stages):
        monkeypatch.setattr(module, "room", lambda device: room)
    monkeypatch.setattr(int4_few_rows, "processors", lambda device: cores)
    for groups, group, tiles, most_parts in (
        (32, 128, 1792, 1),
        (112, 128, 256, 4),
        (9, 64, 36, 1),
    ):
        held, parts, blocks, depth, shared = int4_few_rows._plan(
            groups, group, tiles, eights, most_parts, torch.device("cuda")
        )
        assert shared <= room
        assert depth >= 2
        assert 1 <= blocks <= tiles
        slices = -(-groups // (8 * held))
        kept = -(-tiles // blocks) if slices > parts else 0
        assert shared == depth * 128 * held * (group // 2 + 4) + 512 * eights * (16 + kept)


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize(("eights", "group", "groups"), [(1, 128, 2), (2, 64, 8), (3, 128, 2)])
def test_the_kernel_for_a_few_rows_compiles(architecture, eights, group, groups):
    tile = {"EIGHTS": eights, "GROUP": group, "GROUPS": groups, "STAGES": 3}
    kind = {"GATED": eights % 2, "PARTS": 2 - eights % 2, "BIAS": 2}
    code = compile_for(architecture, "int4_few_rows", **tile, **kind)
    assert code.startswith(b"\x7fELF")


@needs_nvrtc
def test_a_kernel_that_does_not_compile_is_named_with_the_reason():
    with pytest.raises(EngineFailure, match=r"(?s)int4_few_rows\.cu .* sm_90: .*GROUPS"):
        compile_for("sm_90", "int4_few_rows", EIGHTS=1)


def test_a_card_that_it_cannot_be_compiled_for_is_left_to_triton(monkeypatch, caplog):
    def fail(device, **constants):
        raise EngineFailure("int4_few_rows.cu cannot be compiled for sm_999")

    monkeypatch.setattr(int4_few_rows, "_kernel", fail)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (99, 9))
    assert not int4_few_rows._can_be_had.__wrapped__(torch.device("cuda:0"))
    assert "sm_999; Triton multiplies a few rows by INT4 weights instead" in caplog.text


def test_where_a_few_rows_have_their_kernel(monkeypatch):
    monkeypatch.setattr(int4_few_rows, "_can_be_had", lambda device: device.index == 0)
    card, other = torch.device("cuda:0"), torch.device("cuda:1")
    assert int4_few_rows.suits(2, 128, card)
    assert int4_few_rows.suits(24, 64, card)
    assert not int4_few_rows.suits(25, 64, card), "too many rows"
    assert not int4_few_rows.suits(2, 256, card), "groups of another size"
    assert not int4_few_rows.suits(2, 128, other), "cannot be had there"
    assert not int4_few_rows.suits(2, 128, torch.device("cpu"))


@needs_triton
def test_codes_at_their_ends_are_exact():
    from tuner.engines.redrafter.kernels.int4_one_row import one_row
    from tuner.engines.redrafter.kernels.int4_rows import multiply

    codes = torch.tensor([0, 15], dtype=torch.uint8).repeat_interleave(128).repeat(16, 1)
    zero = torch.tensor([[15, 0]], dtype=torch.uint8).repeat(16, 1)
    linear = Int4Linear(pack(codes), torch.ones(16, 2), zero).to(DEVICE)
    x = torch.ones(2, 256, device=DEVICE, dtype=torch.bfloat16)
    x[:, 128:] = 2.0
    locks = torch.zeros(1, device=DEVICE, dtype=torch.int32)
    want = torch.full((2, 16), 15.0 * 128, device=DEVICE, dtype=torch.bfloat16)
    assert torch.equal(one_row(x[:1], *in_order(linear)), want[:1])
    assert torch.equal(multiply(x, *in_order(linear), locks), want)
    if not INTERPRETED:
        assert torch.equal(int4_few_rows.int4_few_rows(x, *in_order(linear)), want)


@needs_triton
@pytest.mark.parametrize(("outputs", "inputs"), [(19, 576), (8, 1024)])
def test_widened(outputs, inputs):
    from tuner.engines.redrafter.kernels.int4_widen import widened

    linear = layer(outputs, inputs, bias=False)
    exact = linear.dequantized()
    close(widened(*in_order(linear)), exact, torch.zeros_like(exact))


@needs_triton
@torch.inference_mode()
@pytest.mark.parametrize("rows", [1, 5, 30, 130, 260])
def test_a_layer_gives_the_same_at_every_number_of_rows(rows, monkeypatch):
    monkeypatch.setattr("tuner.engines.redrafter.quant.int4._WIDENED_AT_ONCE", 64 * 512)
    linear = layer(80, 512, bias=True)
    x = torch.randn(rows, 512, device=DEVICE).bfloat16()
    got = OwnInt4Linear(linear)(x.unsqueeze(0))
    exact = exact_product(linear, x)[0]
    assert got.shape == (1, rows, 80)
    assert float((got[0].float() - exact).norm() / exact.norm()) < 0.01


def test_groups_and_inputs_that_the_kernels_do_not_take():
    taken = OwnInt4Linear.multiplies
    assert taken(Int4Linear.from_float(torch.zeros(8, 576)))
    assert not taken(Int4Linear.from_float(torch.zeros(8, 96))), "groups of 32"
    assert not taken(Int4Linear.from_float(torch.zeros(1, 1 << 16))), "65,536 inputs"
    assert not taken(Int8Linear.from_float(torch.zeros(8, 128)))


def test_int4_goes_through_our_kernels_before_others(monkeypatch):
    monkeypatch.setattr(humming, "multiplies", lambda linear: True)
    linear = Int4Linear.from_float(torch.zeros(64, 576)).to("meta")
    assert isinstance(fast_linear(linear), OwnInt4Linear)
    weights, groups, locks = 64 * 576 // 2, 64 * 9 * 4, 2 * 4
    assert held_bytes(linear, torch.device("cuda")) == weights + groups + locks
