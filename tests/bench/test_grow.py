"""A grown model and drafter write, propose and are accepted as the small ones are."""

from __future__ import annotations

import pytest
import torch

from profiles.records import RequestRecord, StepRecord, TrialConfig
from tests.bench.grow_8b import (
    Shape,
    grow_llama,
    read,
    scramble,
    write_greedily,
)
from tests.bench.grow_drafter import grow_drafter
from tests.tuner.engines.tiny import save_tiny_drafter, save_tiny_llama
from tuner.engines.base import Request
from tuner.engines.redrafter.checkpoint import load_drafter, load_llama, save_drafter, save_llama
from tuner.engines.redrafter.engine import RedrafterEngine

CPU = torch.device("cpu")
SMALL = Shape(32, 64, 2, 4, 2, 8, 24)
LARGE = Shape(80, 112, 3, 12, 4, 12, 40)
PROMPTS = [tuple((5 * i + 3 * j * j) % 24 for j in range(6 + i)) for i in range(6)]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save_tiny_llama(tmp_path_factory.mktemp("grow") / "llama", num_hidden_layers=2)


@pytest.mark.parametrize("field", Shape.__slots__)
def test_one_dimension_grown_changes_no_logit(llama, field):
    small = load_llama(llama).float()
    larger = {"num_heads": 6, "num_kv_heads": 2} if field == "num_heads" else {}
    if field == "num_kv_heads":
        larger = {"num_heads": 12, "num_kv_heads": 4}
    shape = Shape(
        **{
            name: larger.get(name, getattr(LARGE if name == field else SMALL, name))
            for name in Shape.__slots__
        }
    )
    theirs = read(small, list(PROMPTS[5]))
    ours = read(grow_llama(small, shape, CPU, torch.float32), list(PROMPTS[5]))
    torch.testing.assert_close(ours[:, :24], theirs, rtol=1e-4, atol=1e-4)
    assert bool((ours.argmax(-1) == theirs.argmax(-1)).all())


@pytest.mark.parametrize(
    "shape",
    [
        {"context_layers": (1,), "context_width": 24, "num_context_blocks": 1},
        {"context_layers": (1, 2), "recurrence": "gated", "state_size": 48},
        {"exit_dim": 64, "input_projection": False, "recurrence": "sum"},
    ],
    ids=["context network", "gated, wide state", "released layout"],
)
def test_served_they_write_and_accept_the_same(llama, tmp_path, shape):
    drafter = save_tiny_drafter(tmp_path / "drafter", **shape)
    small = load_llama(llama).float()
    large = grow_llama(small, LARGE, CPU, torch.float32)
    grown = grow_drafter(load_drafter(drafter, small.config), large.config, CPU, torch.float32)
    save_llama(large, tmp_path / "large", llama, None)
    save_drafter(grown, tmp_path / "grown", torch.float32)
    theirs = served(llama, drafter)
    assert served(tmp_path / "large", tmp_path / "grown") == theirs
    assert sum(accepted for _, accepted in theirs[1]) > 0


def test_a_larger_draft_vocabulary_proposes_nothing_new(llama, tmp_path):
    drafter = save_tiny_drafter(
        tmp_path / "drafter", draft_vocab_size=16, context_layers=(1,), context_width=24
    )
    small = load_drafter(drafter, load_llama(llama).config).float()
    base = grow_llama(load_llama(llama).float(), LARGE, CPU, torch.float32).config
    large = grow_drafter(small, base, CPU, torch.float32, draft_vocab_size=40)
    assert sorted(large.draft_vocab.tolist()) == list(range(40))
    state, p = torch.randn(5, 32), torch.randn(5, 32)
    wide_p = torch.nn.functional.pad(p, (0, large.config.exit_dim - 32))
    wide_p[:, 32] = 1.0
    wide_state = torch.nn.functional.pad(state, (0, 80 - 32))
    ours = large.logits(wide_p, wide_state).softmax(-1)
    torch.testing.assert_close(ours[:, :16], small.logits(p, state).softmax(-1))
    assert not ours[:, 16:].any()


def test_the_built_in_model_grown_writes_the_same(builtin_model):
    small = load_llama(builtin_model).float()
    shape = Shape(640, 1600, 31, 16, 4, 64, 49_152)
    prompt = (504, 3575, 282, 4649, 314)
    text = write_greedily(small, prompt, 3)
    logits = read(grow_llama(small, shape, CPU, torch.float32), [*prompt, *text])
    assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == text


def test_scrambled_no_matrix_holds_zeros(llama):
    model = scramble(grow_llama(load_llama(llama), LARGE, CPU, torch.float32))
    shares = [float((p == 0).float().mean()) for p in model.parameters() if p.dim() == 2]
    assert max(shares) < 0.01


def test_nothing_may_shrink(llama):
    with pytest.raises(ValueError, match="hidden_size would shrink: 32 to 16"):
        grow_llama(load_llama(llama), Shape(16, 64, 2, 4, 2, 8, 24), CPU, torch.float32)


def served(model, drafter):
    """Texts by request, and for every step which requests ran and how much each accepted."""
    engine = RedrafterEngine()
    engine.prepare(
        TrialConfig(
            model=str(model),
            drafter=str(drafter),
            device="cpu",
            quantization="fp32",
            beam_width=3,
            draft_len=3,
            batch_size=2,
        ),
        64,
    )
    requests = [Request(str(i), prompt, max_new_tokens=24) for i, prompt in enumerate(PROMPTS)]
    records = list(engine.serve(requests))
    texts = {r.id: r.output_token_ids for r in records if isinstance(r, RequestRecord)}
    steps = [
        (rid, accepted)
        for step in records
        if isinstance(step, StepRecord)
        for rid, accepted in zip(step.request_ids, step.accepted, strict=True)
    ]
    return texts, steps
