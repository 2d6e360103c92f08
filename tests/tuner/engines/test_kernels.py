"""The Triton kernels against plain torch, on a GPU or in Triton's interpreter."""

from __future__ import annotations

import copy
import os

import pytest
import torch
import torch.nn.functional as F

from tuner.engines.redrafter.accept import Accepted, accept
from tuner.engines.redrafter.attention import PagedTreeAttention, TreeAttention, tree_mask
from tuner.engines.redrafter.config import LlamaConfig, RopeConfig
from tuner.engines.redrafter.kv_cache import KVCache
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.rope import rotation_table
from tuner.engines.redrafter.rows import Rows
from tuner.engines.redrafter.tree import build_tree

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.skipif(
    not (torch.cuda.is_available() or INTERPRETED),
    reason="needs an NVIDIA GPU, or Triton with TRITON_INTERPRET=1",
)
DEVICE = "cpu" if INTERPRETED else "cuda"


def random_trees(batch: int, nodes: int) -> torch.Tensor:
    """Whether node i sees node j [B, N, N], for trees whose parents are random."""
    sees = torch.eye(nodes, dtype=torch.bool).repeat(batch, 1, 1)
    for b in range(batch):
        for node in range(1, nodes):
            sees[b, node] |= sees[b, torch.randint(node, ()).item()]
    return sees


BF16, FP8, FP32 = torch.bfloat16, torch.float8_e4m3fn, torch.float32
has_bf16_product = pytest.mark.skipif(INTERPRETED, reason="the interpreter has no bf16 product")


@pytest.mark.parametrize(
    ("batch", "nodes", "heads", "kv_heads", "dim", "longest", "dtype", "kept"),
    [
        (1, 1, 4, 4, 64, 3, FP32, FP32),
        (3, 17, 9, 3, 64, 200, FP32, FP32),
        (2, 30, 8, 2, 128, 90, FP32, FP32),
        (2, 5, 6, 2, 8, 40, FP32, FP32),
        (3, 17, 9, 3, 64, 200, FP32, FP8),
        pytest.param(2, 17, 9, 3, 64, 300, BF16, BF16, marks=has_bf16_product),
        pytest.param(2, 17, 9, 3, 64, 300, BF16, FP8, marks=has_bf16_product),
    ],
)
def test_tree_attention(batch, nodes, heads, kv_heads, dim, longest, dtype, kept):
    from tuner.engines.redrafter.kernels.tree_attention import attend

    torch.manual_seed(nodes)
    capacity, pool = longest + nodes + 9, batch * (longest + nodes + 9) + 16
    q = torch.randn(batch * nodes, heads + kv_heads, dim).to(DEVICE, dtype)[:, :heads]
    keys, values = torch.randn(2, pool, kv_heads, dim).to(DEVICE, kept)
    slots = torch.stack([torch.randperm(pool)[:capacity] for _ in range(batch + 1)]).to(DEVICE)
    kv_len = torch.randint(longest + 1, (batch + 1,)).to(DEVICE)
    kv_len[0] = longest
    sees = random_trees(batch, nodes).to(DEVICE)
    got = attend(q, keys, values, slots, kv_len, sees)

    group, span = heads // kv_heads, longest + nodes
    mask = tree_mask(sees, kv_len[:batch], span, group, torch.float32)
    rows = q.float().view(batch, nodes, kv_heads, group, dim).permute(0, 2, 3, 1, 4)
    k, v = (x.float()[slots[:batch, :span]].transpose(1, 2) for x in (keys, values))
    out = F.scaled_dot_product_attention(rows.flatten(2, 3), k, v, attn_mask=mask)
    want = out.view(rows.shape).permute(0, 3, 1, 2, 4).reshape(q.shape)
    close = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got.float(), want, atol=close, rtol=close)


@pytest.mark.parametrize(("heads", "dim"), [(12, 64), (5, 8), (3, 128)])
def test_rotate(heads, dim):
    from tuner.engines.redrafter.kernels.rotate import rotate as kernel
    from tuner.engines.redrafter.rope import rotate

    torch.manual_seed(heads)
    table = rotation_table(RopeConfig(), dim, 50)
    x = torch.randn(7, heads + 4, dim)[:, :heads]
    cos, sin = table[torch.randint(50, (7,))].unsqueeze(2).unbind(1)
    got = kernel(x.to(DEVICE), cos.to(DEVICE), sin.to(DEVICE)).cpu()
    torch.testing.assert_close(got, rotate(x, cos, sin))


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(9, 3, 64), (4, 2, 8), (3, 1, 24)])
@pytest.mark.parametrize("kept", [FP32, FP8])
def test_rotate_store(heads, kv_heads, dim, kept):
    from tuner.engines.redrafter.kernels.rotate_store import rotate_store
    from tuner.engines.redrafter.rope import rotate

    torch.manual_seed(heads)
    every = torch.randn(5, heads + 2 * kv_heads + 1, dim)[:, :-1]
    positions = torch.randint(50, (5,))
    if kept == FP8 and INTERPRETED:
        every, positions = every.to(FP8).float(), 0 * positions  # the interpreter misrounds FP8
    every[0, heads, 0], every[1, -1, 0] = 1e4, -1e4  # beyond the range of e4m3
    cos, sin = rotation_table(RopeConfig(), dim, 50)[positions].unsqueeze(2).unbind(1)
    cache = torch.zeros(2, 40, kv_heads, dim, device=DEVICE, dtype=kept)
    slots = torch.tensor([3, 39, 0, 17, 8], device=DEVICE)
    got = rotate_store(*(x.to(DEVICE) for x in (every, cos, sin)), cache, slots)

    rotated = rotate(every[:, : heads + kv_heads], cos, sin)
    q, keys, values = rotated[:, :heads], rotated[:, heads:], every[:, heads + kv_heads :]
    torch.testing.assert_close(got.cpu(), q)
    want = torch.stack((keys, values))
    if kept == FP8:
        want = want.clamp(-448, 448).to(FP8).float()
    torch.testing.assert_close(cache[:, slots].float().cpu(), want)
    bits = cache.view(torch.uint8)
    bits[:, slots] = 0
    assert not bits.any()


@torch.inference_mode()
@pytest.mark.parametrize("kept", [FP32, FP8])
def test_a_model_over_pages_is_the_model_over_gathered_keys(kept):
    if kept == FP8 and INTERPRETED:
        pytest.skip("the interpreter misrounds FP8")
    torch.manual_seed(0)
    config = LlamaConfig(24, 32, 64, 2, 4, 2, 8, 1e-5, 256, RopeConfig(), False)
    model = Llama(config)
    for parameter in model.parameters():
        parameter.normal_(0.0, 0.4)
    model.to(DEVICE).prepare_positions(64, torch.device(DEVICE), FP32)
    gathered, paged = (KVCache(config, 9, torch.device(DEVICE), FP32, kept) for _ in range(2))
    slots = gathered.slots_of(list(range(1, 9))).view(2, -1)
    kv_len, sees = torch.tensor([20, 7], device=DEVICE), random_trees(2, 5).to(DEVICE)
    gathered.data.copy_(torch.randn(gathered.data.shape))
    paged.data.copy_(gathered.data)
    new = slots.gather(1, kv_len.unsqueeze(1) + torch.arange(5, device=DEVICE)).flatten()
    mask = tree_mask(sees, kv_len, slots.shape[1], gathered.group, FP32)
    tokens = torch.randint(24, (10,), device=DEVICE)
    positions = (kv_len.unsqueeze(1) + sees.sum(-1) - 1).flatten()
    want, _ = model(tokens, positions, TreeAttention(gathered, new, slots, mask))
    got, _ = model(tokens, positions, PagedTreeAttention(paged, new, slots, kv_len, sees))
    close = 1e-4 if kept == FP32 else 5e-2  # a key between two codes may be rounded either way
    torch.testing.assert_close(got, want, atol=close, rtol=close)
    torch.testing.assert_close(paged.data.float(), gathered.data.float(), atol=close, rtol=0.13)


def test_silu_mul():
    from tuner.engines.redrafter.kernels.silu_mul import silu_mul

    gate, up = torch.randn(2, 3, 1500).to(DEVICE).unbind(0)
    torch.testing.assert_close(silu_mul(torch.cat((gate, up), -1)), F.silu(gate) * up)


@pytest.mark.parametrize("size", [576, 4096])
@pytest.mark.parametrize("parts", [1, 3])
def test_add_norm(size, parts):
    from tuner.engines.redrafter.kernels.add_norm import add_norm

    torch.manual_seed(size)
    x, weight = torch.randn(5, size).to(DEVICE), torch.rand(size).to(DEVICE)
    summands = torch.randn(parts, 5, size).to(DEVICE)
    want = x + summands.sum(0)
    total, normed = add_norm(x, summands if parts > 1 else summands[0], weight, 1e-5)
    torch.testing.assert_close(total, want)
    torch.testing.assert_close(normed, F.rms_norm(want, (size,), weight, 1e-5))
    _, normed = add_norm(x, summands, None, 1e-5)
    torch.testing.assert_close(normed, F.rms_norm(want, (size,), eps=1e-5))


def test_take_rows():
    from tuner.engines.redrafter.kernels.take_rows import take_rows

    table = torch.randn(9, 1500).to(DEVICE)
    index = torch.tensor([[8, 0], [3, 8]], device=DEVICE)
    assert torch.equal(take_rows(table, index), table[index])


@pytest.mark.parametrize(("state", "hidden"), [(1100, 24), (24, 1100)])
def test_follow_beams(state, hidden):
    from tuner.engines.redrafter.beam import follow
    from tuner.engines.redrafter.kernels.follow_beams import follow_beams

    torch.manual_seed(state)
    beams, states = torch.randint(90, (2, 3, 4)), torch.randn(2, 3, state)
    parent, index = torch.randint(3, (2, 5)), torch.randint(20, (2, 5))
    vocab, embed = torch.randperm(90)[:20], torch.nn.Embedding(90, hidden).requires_grad_(False)
    want = follow(beams, states, parent, index, vocab, embed)
    on_device = (x.to(DEVICE) for x in (beams, states, parent, index, vocab, embed.weight))
    for got, expected in zip(follow_beams(*on_device), want, strict=True):
        assert torch.equal(got.cpu(), expected)


def test_move_slots():
    from tuner.engines.redrafter.kernels.move_slots import move_slots

    torch.manual_seed(0)
    cache = torch.randn(3, 2, 40, 5, 80)
    source = torch.tensor([[7, 9, 12], [30, 33, 0]])
    target = torch.tensor([[7, 8, 9], [30, 31, 0]])  # what goes to 9 must not be what came there
    want = cache.clone()
    want[:, :, target] = cache[:, :, source]
    moved = cache.to(DEVICE)
    move_slots(moved, source.to(DEVICE), target.to(DEVICE))
    assert torch.equal(moved.cpu(), want)


@pytest.mark.parametrize(
    ("batch", "width", "vocab", "keep"),
    [(1, 1, 24, 4), (3, 4, 8192, 4), (2, 16, 9001, 16), (2, 3, 5, 15)],
)
def test_beam_step(batch, width, vocab, keep):
    from tuner.engines.redrafter.kernels.beam_step import beam_step

    torch.manual_seed(vocab)
    logits, score = torch.randn(batch, width, vocab), -torch.rand(batch, width)
    kept, parent, token = (x.cpu() for x in beam_step(logits.to(DEVICE), score.to(DEVICE), keep))
    total = (score.unsqueeze(-1) + logits.log_softmax(-1)).flatten(1)
    want, chosen = total.topk(keep)
    torch.testing.assert_close(kept, want)
    assert torch.equal(parent, chosen // vocab)
    assert torch.equal(token, chosen % vocab)


@pytest.mark.parametrize(("inputs", "outputs"), [(576, 45), (5000, 6), (96, 300)])
def test_one_row(inputs, outputs):
    from tuner.engines.redrafter.kernels.one_row import one_row

    torch.manual_seed(inputs)
    x, weight = torch.randn(1, inputs).to(DEVICE), torch.randn(outputs, inputs).to(DEVICE)
    bias, scale = torch.randn(outputs).to(DEVICE), torch.rand(outputs).to(DEVICE)
    exact = (x.double() @ weight.double().t()).float()
    torch.testing.assert_close(one_row(x, weight), exact, atol=1e-3, rtol=1e-4)
    got = one_row(x, weight, bias, scale)
    torch.testing.assert_close(got, exact * scale + bias, atol=1e-3, rtol=1e-4)


def test_one_row_gated():
    from tuner.engines.redrafter.kernels.one_row import one_row

    torch.manual_seed(0)
    x, weight = torch.randn(1, 576).to(DEVICE), torch.randn(70, 576).to(DEVICE) / 24
    bias = torch.randn(70).to(DEVICE)
    gate, up = F.linear(x, weight, bias).chunk(2, -1)
    torch.testing.assert_close(
        one_row(x, weight, bias, gated=True), F.silu(gate) * up, atol=1e-4, rtol=1e-4
    )


def half_product(rows, inputs, outputs):
    """Rows, weight and bias in fp16 on the device, and the exact product without the bias."""
    torch.manual_seed(rows + inputs)
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs) / inputs**0.5
    x, weight, bias = (t.half().to(DEVICE) for t in (x, weight, torch.randn(outputs)))
    return x, weight, bias, x.double() @ weight.double().t()


def check_product(multiply, x, weight, bias, exact):
    torch.testing.assert_close(multiply(x, weight), exact.half(), atol=2e-3, rtol=2e-3)
    exact = exact + bias.double()
    torch.testing.assert_close(multiply(x, weight, bias), exact.half(), atol=4e-3, rtol=2e-3)
    if len(bias) % 2 == 0:
        gate, up = exact.chunk(2, -1)
        gated = multiply(x, weight, bias, gated=True)
        torch.testing.assert_close(gated, (F.silu(gate) * up).half(), atol=8e-3, rtol=4e-3)


@pytest.mark.parametrize("rows", [2, 17, 64])
@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [(576, 45), (1000, 130), (96, 20_000), (2000, 100), (1536, 2100), (1200, 17_000)],
)
def test_few_rows(rows, inputs, outputs):
    from tuner.engines.redrafter.kernels.few_rows import few_rows

    x, weight, bias, exact = half_product(rows, inputs, outputs)
    check_product(few_rows, x, weight, bias, exact)
    if outputs in (100, 2100):
        parts = few_rows(x, weight, bias, joined=False)
        assert parts.shape[0] > 1
        assert parts.dtype == torch.float32
        want = (exact + bias.double()).float()
        torch.testing.assert_close(parts.sum(0), want, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("rows", [1, 8, 17])
@pytest.mark.parametrize(("inputs", "outputs"), [(576, 45), (1536, 130), (96, 20), (2048, 36)])
def test_sliced_rows(rows, inputs, outputs):
    from tuner.engines.redrafter.kernels.sliced_rows import sliced_rows, suits

    x, weight, bias, exact = half_product(rows, inputs, outputs)
    assert suits(rows, weight)
    assert not suits(500, weight)
    check_product(sliced_rows, x, weight, bias, exact)


@pytest.mark.parametrize(("rows", "size"), [(1, 7), (5, 49_152), (3, 9001)])
def test_argmax(rows, size):
    from tuner.engines.redrafter.kernels.argmax import argmax

    torch.manual_seed(size)
    logits = torch.randn(rows, size).to(DEVICE)
    assert torch.equal(argmax(logits), logits.argmax(-1))
    logits[:, size // 2] = logits[:, size - 1] = 99.0
    assert argmax(logits).tolist() == [size // 2] * rows, "the first of equals"


@pytest.mark.skipif(INTERPRETED, reason="the interpreter misrounds FP8")
@pytest.mark.parametrize("rows", [2, 17, 65, 300])
@pytest.mark.parametrize(("inputs", "outputs"), [(576, 960), (4096, 128), (512, 20_000)])
def test_fp8_rows(rows, inputs, outputs):
    from tuner.engines.redrafter.kernels.fp8_rows import multiply, quantize_tokens
    from tuner.engines.redrafter.quant import fp8

    torch.manual_seed(rows)
    layer = fp8.Fp8Linear.from_float(
        torch.randn(outputs, inputs, device=DEVICE), torch.randn(outputs, device=DEVICE)
    )
    x = torch.randn(rows, inputs, device=DEVICE).bfloat16()
    codes, scale = quantize_tokens(x, fp8.LARGEST)
    theirs, want_scale = fp8.quantize_tokens(x)
    torch.testing.assert_close(scale, want_scale.squeeze(1))
    assert (codes.float() != theirs.float()).float().mean() < 1e-3, "ties may round either way"
    got = multiply(codes, scale, layer.e4m3, layer.scale.squeeze(1), layer.bias)
    torch.testing.assert_close(got.float(), layer(x).float(), atol=0.5, rtol=2e-2)


@pytest.mark.parametrize(
    ("width", "length", "vocab"), [(1, 2, 9), (4, 5, 2), (16, 6, 3), (3, 4, 50), (33, 3, 4)]
)
def test_merge_beams_and_accept_path(width, length, vocab):
    from tuner.engines.redrafter.kernels.accept_path import accept_path
    from tuner.engines.redrafter.kernels.merge_beams import merge_beams

    torch.manual_seed(width * length)
    beams = torch.randint(vocab, (5, width, length + 2))[..., :length]  # columns of a longer beam
    beams[..., 0] = torch.arange(5).unsqueeze(1)
    room = 1 + width * (length - 1)
    tree = build_tree(beams, room)
    merged = merge_beams(beams.to(DEVICE), room)
    for name, got in zip(("node_of", "tokens", "depth", "sees", "count"), merged, strict=True):
        assert torch.equal(got.cpu(), getattr(tree, name)), name

    choice = torch.randint(vocab, (5, room))
    for row in range(3):  # the base model follows the last beam to its end
        choice[row, tree.node_of[row, -1, :-1]] = beams[row, -1, 1:]
    want = accept(tree, choice)
    assert want.length[:3].tolist() == [length - 1] * 3
    got = accept_path(beams.to(DEVICE), merged[0], choice.to(DEVICE))
    assert torch.equal(got[0].cpu(), want.length)
    for mine, theirs in zip(got[1:], (want.path, want.tokens), strict=True):
        for row, accepted in enumerate(want.length.tolist()):  # the rest is left over
            assert torch.equal(mine[row, : accepted + 1].cpu(), theirs[row, : accepted + 1])


@pytest.mark.parametrize("width", [1, 4])
def test_silu_add(width):
    from tuner.engines.redrafter.kernels.silu_add import add_silu, silu_of_sum

    torch.manual_seed(width)
    x, y = torch.randn(2, width, 1500).to(DEVICE), torch.randn(2, width, 1500).to(DEVICE)
    each = torch.randn(2, 1, 1600).to(DEVICE)[..., 100:]
    torch.testing.assert_close(add_silu(x, y), x + F.silu(y))
    torch.testing.assert_close(silu_of_sum(x, y, each), F.silu(x + y + each))


@pytest.mark.parametrize("nodes", [1, 17])
def test_place_and_advance(nodes):
    from tuner.engines.redrafter.kernels.advance_rows import advance_rows
    from tuner.engines.redrafter.kernels.place_nodes import place_nodes

    torch.manual_seed(nodes)
    length, size = min(nodes, 5), 1500
    rows = Rows(4, 64, size, torch.device("cpu"), torch.float32)
    rows.slots.copy_(1 + torch.randperm(4 * 64).view(4, 64))
    rows.kv_len.copy_(torch.tensor([0, 7, 40, 3]))
    rows.context.normal_()
    other = copy.deepcopy(rows)
    for name in ("true_token", "context", "kv_len", "slots"):
        setattr(other, name, getattr(other, name).to(DEVICE))

    count, depth = torch.randint(1, nodes + 1, (3,)), torch.randint(length, (3, nodes))
    placed = place_nodes(other.slots, other.kv_len, depth.to(DEVICE), count.to(DEVICE))
    for got, want in zip(placed, rows.place_nodes(depth, count), strict=True):
        assert torch.equal(got.cpu(), want)

    path, tokens = torch.randint(nodes, (3, length)), torch.randint(99, (3, length))
    accepted = Accepted(torch.randint(length, (3,)), path, tokens)
    context = torch.randn(3, nodes, size)
    on_device = Accepted(*(x.to(DEVICE) for x in (accepted.length, path, tokens)))
    advanced = advance_rows(other, on_device, count.to(DEVICE), context.to(DEVICE))
    for got, want in zip(advanced, rows.advance(accepted, count, context), strict=True):
        assert torch.equal(got.cpu(), want)
    for mine, theirs in zip(other.tensors(), rows.tensors(), strict=True):
        assert torch.equal(mine.cpu(), theirs)
