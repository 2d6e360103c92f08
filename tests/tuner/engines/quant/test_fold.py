"""Folding scales changes no logits."""

from __future__ import annotations

import pytest
import torch

from tests.tuner.engines.quant.reading import logits_of
from tests.tuner.engines.tiny import save_tiny_llama
from tuner.engines.redrafter.checkpoint import load_llama
from tuner.engines.redrafter.quant.fold import folds

PLACES = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")


@pytest.fixture(scope="module")
def with_biases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fold") / "llama"
    return save_tiny_llama(folder, attention_bias=True, mlp_bias=True)


@pytest.mark.parametrize("place", range(4), ids=PLACES)
@torch.no_grad()
def test_the_model_computes_the_same(with_biases, place):
    model = load_llama(with_biases).float()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # biases and norms are stored as zeros and ones
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    before = logits_of(model)
    for layer in range(2):
        fold = folds(model, layer)[place]
        assert fold.name == f"layers.{layer}.{PLACES[place]}"
        old = fold.linear.weight.clone()
        scale = torch.rand(old.shape[1], generator=generator) * 8 + 0.1
        fold.apply(fold.shared(scale))
        assert not torch.allclose(fold.linear.weight, old)
    torch.testing.assert_close(logits_of(model), before, rtol=1e-4, atol=1e-4)


def test_query_heads_of_one_value_head_share_a_scale(with_biases):
    fold = folds(load_llama(with_biases), 0)[1]
    heads = fold.shared(torch.arange(32.0)).view(4, 8)
    assert torch.equal(heads[0], heads[1]) and torch.equal(heads[2], heads[3])
    assert heads[0].tolist() == list(range(8, 16))
