"""A training that is watched, killed, resumed, stopped early, or that diverges."""

import shutil
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.tuner.engines.interrupted_training import Stopped, curve, killed_at, stop_at
from tests.tuner.engines.training_tiny import (
    random_prompts,
    save_answers,
    save_model,
    tiny_spec,
)
from tuner.engines.redrafter.training import held_out, recurrent, train
from tuner.engines.redrafter.training.checkpoint import CHECKPOINT_FILE
from tuner.engines.redrafter.training.curriculum import Curriculum, Stage, stage_at
from tuner.engines.redrafter.training.held_out import hold_out
from tuner.engines.redrafter.training.progress import PROGRESS_FILE, read_progress
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.errors import BadInput

STAGES = Curriculum(0.25, 0.25, 0.25, beam_width=3, beam_positions=20)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A training of 24 steps that runs through all stages."""
    folder = tmp_path_factory.mktemp("short")
    model = save_model(folder / "model")
    answers = save_answers(model, folder / "rows.safetensors", random_prompts(60, 6, seed=1), 16)
    return tiny_spec(
        model, answers, folder / "unused", max_steps=24, tokens_per_step=128, report_every=3,
        evaluate_every=6, held_out_tokens=16, curriculum=STAGES, patience=0,
        checkpoint_seconds=0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole(short, tmp_path_factory):
    spec = replace(short, out=tmp_path_factory.mktemp("whole"))
    return spec, train.train_drafter(spec)


def same_drafter(one, other):
    first, second = (load_file(str(folder / "drafter.safetensors")) for folder in (one, other))
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def test_progress_tells_the_course(whole):
    spec, report = whole
    rows = read_progress(spec.out)
    assert [row.step for row in rows] == [3, 6, 9, 12, 15, 18, 21, 24]
    assert [row.stage for row in rows] == [1, 1, 2, 2, 2, 2, 3, 3]
    assert [row.draft_len for row in rows] == [1, 1, 2, 4, 4, 4, 4, 4]
    assert all(len(row.loss_by_draft) == len(row.top1_by_draft) == row.draft_len for row in rows)
    assert [row.acceptance_length is not None for row in rows] == [False, True] * 4
    assert rows[-1].top1_by_draft[0] > rows[0].top1_by_draft[0]
    assert report.acceptance_length == max(row.acceptance_length or 0 for row in rows)
    assert sorted(path.name for path in spec.out.iterdir()) == [
        "config.json", "drafter.safetensors", PROGRESS_FILE,
    ]  # fmt: skip


def test_a_killed_training_resumes_on_the_same_curve(short, whole, tmp_path):
    """SIGKILL after step 15: the checkpoint is of step 12, and stage 3 begins after it."""
    spec = replace(short, out=tmp_path / "killed")
    assert killed_at(15, train.train_drafter, spec) == -signal.SIGKILL
    assert [row.step for row in read_progress(spec.out)] == [3, 6, 9, 12, 15]
    with pytest.raises(BadInput) as caught:
        train.train_drafter(spec)
    assert caught.value.field == "out"
    resumed = train.train_drafter(spec, resume=True)
    assert curve(spec.out) == curve(whole[0].out)
    assert same_drafter(spec.out, whole[0].out)
    assert replace(resumed, seconds=0) == replace(whole[1], seconds=0)


@pytest.fixture
def stopped(short, tmp_path):
    """A training that ended by an exception after the checkpoint of step 6."""
    spec = replace(short, out=tmp_path / "stopped")
    with pytest.raises(Stopped):
        train.train_drafter(spec, stop_at(6))
    return spec


def test_an_exception_at_any_step_changes_nothing(stopped, whole):
    with pytest.raises(Stopped):
        train.train_drafter(stopped, stop_at(21), resume=True)
    train.train_drafter(stopped, resume=True)
    assert curve(stopped.out) == curve(whole[0].out)


def test_another_recipe_is_not_resumed(stopped):
    changed = replace(stopped, learning_rate=1e-3)
    with pytest.raises(BadInput, match="the training to resume has") as caught:
        train.train_drafter(changed, resume=True)
    assert caught.value.field == "learning_rate"


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "pickle"])
def test_a_damaged_checkpoint_is_named(stopped, damage):
    path = stopped.out / CHECKPOINT_FILE
    whole_file = path.read_bytes()
    if damage == "pickle":
        torch.save({"drafter": torch.zeros(3)}, path)
    else:
        path.write_bytes({"empty": b"", "cut": whole_file[:-99], "text": b"{}"}[damage])
    with pytest.raises(BadInput) as caught:
        train.train_drafter(stopped, resume=True)
    assert caught.value.field == "out"


def test_nothing_to_resume_is_named(short, tmp_path):
    with pytest.raises(BadInput, match="no training to resume"):
        train.train_drafter(replace(short, out=tmp_path), resume=True)


def test_a_checkpoint_is_safetensors_and_json(stopped):
    tensors = load_file(str(stopped.out / CHECKPOINT_FILE))
    assert tensors["chance"].dtype == torch.uint8
    assert tensors["optimizer.0.exp_avg"].shape == tensors["drafter.rnn_w.weight"].shape


def test_a_diverging_loss_stops_and_keeps_the_last_checkpoint(short, tmp_path, monkeypatch):
    spec = replace(short, out=tmp_path / "diverged")
    step = recurrent.train_step

    def poisoned(base, drafter, *rest):
        if torch.isfinite(drafter.head.weight).all() and len(read_progress(spec.out)) == 3:
            with torch.no_grad():
                drafter.head.weight[0, 0] = float("nan")
        return step(base, drafter, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(recurrent, "train_step", poisoned)
        with pytest.raises(BadInput, match="checkpoint of step 6 is kept") as caught:
            train.train_drafter(spec)
    assert caught.value.field == "learning_rate" and "nan by step 12" in str(caught.value)
    resumed = train.train_drafter(spec, resume=True)
    assert resumed.steps == 24


def test_a_broken_base_model_is_not_blamed_on_the_learning_rate(short, tmp_path):
    model = shutil.copytree(short.model_dir, tmp_path / "model")
    weights = load_file(str(model / "model.safetensors"))
    weights["model.norm.weight"][3] = float("nan")
    save_file(weights, str(model / "model.safetensors"))
    with pytest.raises(BadInput, match="not finite") as caught:
        train.train_drafter(replace(short, model_dir=model, out=tmp_path / "out"))
    assert caught.value.field == "model"


def test_it_stops_when_acceptance_no_longer_grows(short, tmp_path, monkeypatch):
    lengths = iter([1.2, 1.5, 1.4, 1.5, 1.4, 1.3, 1.6])
    monkeypatch.setattr(held_out.HeldOut, "acceptance_length", lambda self, method: next(lengths))
    spec = replace(
        short, out=tmp_path / "early", evaluate_every=3, patience=2, curriculum=Curriculum()
    )
    report = train.train_drafter(spec)
    assert report.stopped_early and report.steps == 18
    assert report.acceptance_length == 1.5
    assert not (spec.out / CHECKPOINT_FILE).exists()


def test_held_out_prompts_are_not_trained_on(short):
    rows = AnswerRows.load(short.data)
    twice = rows.select([*range(len(rows)), 0, 1, 2])
    kept, prompts = hold_out(twice, 10, seed=0)
    assert len(prompts) == 10
    left = [kept.prompt(number) for number in range(len(kept))]
    assert not [prompt for prompt in prompts if prompt in left]
    assert {tuple(p) for p in (*left, *prompts)} == {
        tuple(rows.prompt(number)) for number in range(len(rows))
    }
    few, none = hold_out(rows.select([0, 1, 2]), 10, seed=0)
    assert len(few) == 3 and none == []


def test_stages_follow_their_shares():
    plain = Curriculum()
    assert {stage_at(f / 10, 5, plain) for f in range(11)} == {Stage(2, 5)}
    staged = Curriculum(0.2, 0.4, 0.2)
    assert [stage_at(f, 5, staged).number for f in (0, 0.19, 0.2, 0.79, 0.8, 1)] == [
        1, 1, 2, 2, 3, 3,
    ]  # fmt: skip
    lengths = [stage_at(f / 100, 5, staged).draft_len for f in range(20, 60)]
    assert lengths == sorted(lengths) and set(lengths) == {2, 3, 4, 5}
    assert stage_at(0.5, 1, Curriculum(growing_share=1.0)) == Stage(2, 1)
    assert stage_at(0.0, 3, Curriculum(beam_share=1.0)) == Stage(3, 3)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"one_step_share": -0.1}, "one_step_share"),
        ({"beam_share": 0.7, "growing_share": 0.7}, "one_step_share + growing_share + beam_share"),
        ({"beam_width": 0}, "beam_width"),
    ],
)
def test_bad_curricula_are_named(changes, field):
    with pytest.raises(BadInput) as caught:
        Curriculum(**changes)
    assert caught.value.field == field
