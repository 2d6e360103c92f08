"""Every kind is trained by one loop: watched, resumable after a kill, stopped early, judged."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from tests.tuner.engines.interrupted_training import Stopped, curve, killed_at, stop_at
from tests.tuner.engines.tiny import save_tiny_drafter
from tests.tuner.engines.training_tiny import VOCAB, random_prompts, save_answers, save_model
from tuner.engines.redrafter.drafters.causal_lm_training import CausalLMSpec, train_causal_lm
from tuner.engines.redrafter.drafters.local_attention_training import (
    LocalAttentionSpec,
    train_local_attention,
)
from tuner.engines.redrafter.drafters.look_back import LookBackConfig
from tuner.engines.redrafter.training import held_out
from tuner.engines.redrafter.training.checkpoint import CHECKPOINT_FILE
from tuner.engines.redrafter.training.progress import read_progress
from tuner.errors import BadInput


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    """A training of 24 steps of either kind, with its function."""
    folder = tmp_path_factory.mktemp("watched")
    model = save_model(folder / "model")
    answers = save_answers(model, folder / "rows.safetensors", random_prompts(60, 6, seed=1), 16)
    recurrent = save_tiny_drafter(
        folder / "recurrent", vocab=VOCAB, context_layers=(1,), trained_draft_len=4
    )
    common = {
        "model_dir": model, "data": answers, "out": folder, "max_steps": 24, "tokens_per_step": 128,
        "warmup_steps": 2, "learning_rate": 1e-2, "report_every": 3, "evaluate_every": 6,
        "held_out_tokens": 16, "patience": 0, "checkpoint_seconds": 0,
    }  # fmt: skip
    look_back = LookBackConfig(window=8, num_heads=2, head_dim=8)
    attention = LocalAttentionSpec(**common, recurrent_dir=recurrent, look_back=look_back)
    return {
        "causal LM": (CausalLMSpec(**common, layers=(1,)), train_causal_lm),
        "local attention": (attention, train_local_attention),
    }


@pytest.fixture(scope="module", params=["causal LM", "local attention"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def whole(specs, kind, tmp_path_factory):
    spec, train = specs[kind]
    spec = replace(spec, out=tmp_path_factory.mktemp("whole"))
    return spec, train(spec)


def weights(folder):
    files = sorted(folder.rglob("*.safetensors"))
    return {f"{file.name}/{name}": t for file in files for name, t in load_file(file).items()}


def same_outcome(spec, report, whole):
    assert curve(spec.out) == curve(whole[0].out)
    ours, theirs = weights(spec.out), weights(whole[0].out)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
    assert replace(report, seconds=0) == replace(whole[1], seconds=0)


def test_it_is_measured_on_held_out_prompts_and_judged(whole, kind):
    spec, report = whole
    rows = read_progress(spec.out)
    assert [row.acceptance_length is not None for row in rows] == [False, True] * 4
    assert rows[-1].loss < rows[0].loss
    assert rows[-1].acceptance_length > rows[1].acceptance_length
    assert report.acceptance_length == max(row.acceptance_length or 0 for row in rows)
    assert report.verdict.useless is False
    assert len(rows[0].top1_by_draft) == (1 if kind == "causal LM" else 4)
    assert not (spec.out / CHECKPOINT_FILE).exists()


def test_an_interrupted_training_resumes_on_the_same_curve(specs, kind, whole, tmp_path):
    spec, train = specs[kind]
    spec = replace(spec, out=tmp_path / "out")
    with pytest.raises(Stopped):
        train(spec, stop_at(15))
    with pytest.raises(BadInput, match="holds an unfinished training"):
        train(spec)
    same_outcome(spec, train(spec, resume=True), whole)


def test_a_killed_training_resumes_on_the_same_curve(specs, tmp_path_factory):
    """SIGKILL after step 15: the checkpoint is of step 12."""
    spec, train = specs["causal LM"]
    uninterrupted = replace(spec, out=tmp_path_factory.mktemp("uninterrupted"))
    spec = replace(spec, out=tmp_path_factory.mktemp("killed"))
    assert killed_at(15, train, spec) == -signal.SIGKILL
    assert [row.step for row in read_progress(spec.out)] == [3, 6, 9, 12, 15]
    report = train(spec, resume=True)
    same_outcome(spec, report, (uninterrupted, train(uninterrupted)))


def test_other_layers_are_not_resumed_and_frozen_weights_not_kept(specs, tmp_path):
    spec, train = specs["causal LM"]
    spec = replace(spec, out=tmp_path)
    with pytest.raises(Stopped):
        train(spec, stop_at(6))
    kept = load_file(tmp_path / CHECKPOINT_FILE)
    assert "drafter.layers.0.self_attn.o_proj.weight" in kept
    assert not [name for name in kept if "embed_tokens" in name or "lm_head" in name]
    with pytest.raises(BadInput, match=r"layers = \[0\]: the training to resume has \[1\]"):
        train(replace(spec, layers=(0,)), resume=True)


def test_it_stops_when_acceptance_no_longer_grows(specs, kind, tmp_path, monkeypatch):
    spec, train = specs[kind]
    lengths = iter([1.2, 1.5, 1.4, 1.3])
    monkeypatch.setattr(held_out.HeldOut, "acceptance_length", lambda self, method: next(lengths))
    report = train(replace(spec, out=tmp_path, evaluate_every=3, patience=2))
    assert report.stopped_early and report.steps == 12 and report.acceptance_length == 1.5


def test_a_diverging_loss_is_named(specs, kind, tmp_path):
    spec, train = specs[kind]
    with pytest.raises(BadInput, match="training diverged and has stopped") as caught:
        train(replace(spec, out=tmp_path, learning_rate=1e30))
    assert caught.value.field == "learning_rate"
