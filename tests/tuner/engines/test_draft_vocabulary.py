"""A smaller draft vocabulary: the same greedy text, drafts accepted no longer, clear refusals."""

from __future__ import annotations

import pytest
import torch

from profiles.records import RequestRecord, StepRecord, TrialConfig
from tests.tuner.engines.drafters.conftest import save_tiny_local_attention
from tests.tuner.engines.training_tiny import (
    CPU,
    random_prompts,
    save_answers,
    save_model,
    tiny_spec,
)
from tuner.engines.base import Request
from tuner.engines.redrafter.drafters import load_draft_method
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.engines.redrafter.linear import compute_path
from tuner.engines.redrafter.training.forward import load_frozen
from tuner.engines.redrafter.training.train import train_drafter
from tuner.errors import BadInput

OWN = 60  # what `tiny_spec` trains
FP32 = compute_path("fp32", CPU)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def drafter(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("drafter")
    data = save_answers(model, folder / "rows.safetensors", random_prompts(96, 6, seed=1))
    train_drafter(tiny_spec(model, data, folder / "out", max_steps=100, held_out_prompts=0))
    return folder / "out"


@pytest.fixture(scope="module")
def engine():
    engine = RedrafterEngine()
    yield engine
    engine.close()


def prepare(engine, model, drafter, **knobs):
    fixed = {"model": str(model), "device": "cpu", "quantization": "fp32", "batch_size": 4}
    drafts = {"drafter": str(drafter), "beam_width": 2, "draft_len": 4}
    engine.prepare(TrialConfig(**{**fixed, **drafts, **knobs}), 80)


def serve(engine, model, drafter, **knobs):
    """Texts by request, and the acceptance length."""
    prepare(engine, model, drafter, **knobs)
    prompts = random_prompts(16, 6, seed=2)
    requests = [Request(str(i), tuple(prompt), 32) for i, prompt in enumerate(prompts)]
    records = list(engine.serve(requests))
    texts = {r.id: r.output_token_ids for r in records if isinstance(r, RequestRecord)}
    committed = [n for r in records if isinstance(r, StepRecord) for n in r.committed]
    return texts, sum(committed) / len(committed)


def test_text_is_the_same_and_acceptance_no_longer(engine, model, drafter):
    expected, plain = serve(engine, model, drafter, draft_len=0)
    assert plain == 1
    accepted = []
    for size in (2, 8, 24, OWN, None):
        text, length = serve(engine, model, drafter, draft_vocab_size=size)
        assert text == expected
        accepted.append(length)
    assert accepted == sorted(accepted) and accepted[-1] == accepted[-2] > accepted[0] + 0.3


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["recurrent", "local attention"])
def test_the_most_frequent_tokens_are_kept(model, drafter, tmp_path, kind):
    base = load_frozen(model, CPU, 128)
    if kind == "local attention":
        drafter = save_tiny_local_attention(tmp_path / "attention", drafter, base.config)
    whole = load_draft_method(str(drafter), base, model, FP32)
    cut = load_draft_method(str(drafter), base, model, FP32, 8)
    nets = [m.drafter if kind == "recurrent" else m.recurrent for m in (whole, cut)]
    assert torch.equal(nets[1].draft_vocab, nets[0].draft_vocab[:8])
    assert torch.equal(nets[1].head.weight, nets[0].head.weight[:8])
    assert cut.nbytes == whole.nbytes - (OWN - 8) * (4 * base.config.hidden_size + 8)
    context = torch.randn(3, nets[0].config.context_size)
    for method in (whole, cut):
        method.reserve(3, 40)
    beams = cut.propose(torch.tensor([1, 2, 3]), torch.tensor([5, 6, 7]), context, 8, 4)
    assert set(beams[..., 1:].unique().tolist()) <= set(nets[1].draft_vocab.tolist())


def test_more_than_there_is_is_refused(engine, model, drafter):
    with pytest.raises(BadInput, match="draft_vocab_size = 61: the drafter has 60 tokens"):
        prepare(engine, model, drafter, draft_vocab_size=61)


def test_fewer_than_beams_are_refused(engine, model, drafter):
    with pytest.raises(BadInput, match=r"draft_vocab_size = 3: .*at least beam_width, 4"):
        prepare(engine, model, drafter, draft_vocab_size=3, beam_width=4)


def test_drafters_without_one_refuse(engine, model):
    with pytest.raises(BadInput, match="draft_vocab_size = 8: retrieval has none"):
        prepare(engine, model, "retrieval", draft_vocab_size=8)
    with pytest.raises(BadInput, match="draft_vocab_size = 8: a causal LM has none"):
        prepare(engine, model, model, draft_vocab_size=8)
