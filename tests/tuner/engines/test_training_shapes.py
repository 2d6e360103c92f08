"""Drafters of other shapes than the released one train, are saved and draft alike."""

import pytest
import torch

from tests.tuner.engines.training_tiny import (
    CPU,
    random_prompts,
    save_answers,
    save_model,
    tiny_spec,
)
from tuner.engines.redrafter import apple_layout
from tuner.engines.redrafter.checkpoint import load_drafter
from tuner.engines.redrafter.drafter import DrafterConfig
from tuner.engines.redrafter.training import train
from tuner.engines.redrafter.training.curriculum import Curriculum
from tuner.engines.redrafter.training.forward import load_frozen
from tuner.engines.redrafter.training.spec import PLAIN
from tuner.errors import BadInput


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    model = save_model(folder / "model")
    return model, save_answers(model, folder / "rows.safetensors", random_prompts(60, 6, 1), 16)


def trained(tiny, out, **changes):
    seen = []
    few = {"max_steps": 40, "report_every": 5, "evaluate_every": 40, "tokens_per_step": 300}
    train.train_drafter(tiny_spec(*tiny, out, **few, **changes), seen.append)
    drafter = load_drafter(out, load_frozen(tiny[0], CPU, 16).config)
    return seen, drafter


@pytest.mark.parametrize(
    "shape",
    [
        {"recurrence": "gated"},
        {"state_size": 40},
        {"recurrence": "gated", "state_size": 24} | PLAIN,
    ],
)
def test_a_shape_trains_and_is_read_back(tiny, tmp_path, shape):
    seen, drafter = trained(tiny, tmp_path, **shape)
    assert seen[-1].loss < seen[0].loss - 0.3
    assert drafter.config.recurrence == shape.get("recurrence", "elman")
    assert drafter.rnn_u.weight.shape[0] == shape.get("state_size", 32)
    assert drafter.config.tokenizer_sha256 is not None
    with pytest.raises(BadInput, match="Apple's layout cannot express it"):
        apple_layout.from_ours(drafter)


def test_a_plain_drafter_fits_the_released_layout(tiny, tmp_path):
    seen, drafter = trained(tiny, tmp_path, **PLAIN, curriculum=Curriculum(beam_share=0.5))
    assert max(row.loss for row in seen) < 10  # what is not scored is no rival of the true path
    (change,) = apple_layout.from_ours(drafter).changes
    assert "the same drafts from a larger head" in change  # and no other rule


def test_a_closed_gate_keeps_the_state(tiny, tmp_path):
    _, drafter = trained(tiny, tmp_path, recurrence="gated")
    drafter.float()
    embedding, state, d = torch.randn(3, 2, 32)
    free = drafter.next_state(embedding, state, d)
    with torch.no_grad():
        drafter.gate_u.bias.fill_(50.0)
        assert torch.allclose(drafter.next_state(embedding, state, d), state)
        drafter.gate_u.bias.fill_(-50.0)
        moved = drafter.next_state(embedding, state, d)
    assert not torch.allclose(moved, free)
    drafter.config = DrafterConfig(32, 64, 32, 2, 60, 4)
    assert torch.allclose(drafter.next_state(embedding, state, d), moved)


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"recurrence": "lstm"}, "recurrence"), ({"state_size": -1}, "state_size")],
)
def test_bad_shapes_are_named(tiny, tmp_path, changes, field):
    with pytest.raises(BadInput) as caught:
        tiny_spec(*tiny, tmp_path, **changes)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "settings", [{"recurrence": "sum"}, {"first_step": "embedding"}, {"input_projection": False}]
)
def test_a_state_size_that_contradicts_is_refused(settings):
    exit_dim = 32 if settings.get("input_projection", True) else 64
    with pytest.raises(ValueError, match="state_size"):
        DrafterConfig(32, 64, exit_dim, 1, 60, 4, state_size=48, **settings)
