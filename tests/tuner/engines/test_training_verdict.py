"""A useless drafter is called useless, with the cause that the evidence shows."""

from dataclasses import replace

import pytest
import torch

from tests.tuner.engines.training_tiny import (
    BOT,
    STOP,
    USER,
    VOCAB,
    random_prompts,
    save_answers,
    save_model,
    tiny_spec,
)
from tuner.engines.redrafter.training import train
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.engines.redrafter.training.verdict import Evidence, Reading, judge
from tuner.errors import BadInput

GOOD = Evidence(
    acceptance_length=2.3, framed_prompts=1.0, base_agreement=0.9, base_loss=0.5, chance_loss=10.8,
    reading=Reading(top1=0.6, top1_shuffled=0.1, top1_shifted=0.2), vocab_coverage=0.97,
    loss_fall=0.01, steps=1000,
)  # fmt: skip
USELESS = replace(GOOD, acceptance_length=1.04)


def names(evidence):
    return [cause.name for cause in judge(evidence).causes]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"base_loss": 9.0, "base_agreement": 0.05}, ["wrong tokenizer"]),
        ({"framed_prompts": 0.0}, ["template mismatch"]),
        ({"framed_prompts": None}, []),
        ({"base_agreement": 0.3, "base_loss": 3.0}, ["answers of another model"]),
        ({"reading": Reading(0.1, 0.1, 0.5)}, ["wrong hidden state"]),
        ({"reading": Reading(0.12, 0.11, 0.2)}, ["wrong hidden state"]),
        ({"reading": None}, []),
        ({"vocab_coverage": 0.4}, ["draft vocabulary too small"]),
        ({"loss_fall": 0.2}, ["undertrained"]),
        ({"loss_fall": None, "steps": 3}, ["undertrained"]),
    ],
)
def test_each_cause_is_told_by_its_own_evidence(changes, expected):
    verdict = judge(replace(USELESS, **changes))
    assert verdict.useless and "1.04 tokens a step" in verdict.text
    assert names(replace(USELESS, **changes)) == expected
    assert all(cause.evidence and cause.remedy for cause in verdict.causes)


def test_a_good_drafter_has_no_causes():
    verdict = judge(replace(GOOD, loss_fall=0.2, framed_prompts=0.0))
    assert verdict.useless is False and verdict.causes == [] and "2.30" in verdict.text


def test_what_was_not_measured_is_not_judged():
    assert judge(replace(GOOD, acceptance_length=None)).useless is None


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("tiny") / "model")


def framed(count):
    return [[USER, *words, STOP, BOT] for words in random_prompts(count, 5, seed=1)]


def trained(model, answers, out, **changes):
    """Train briefly with everything held fixed but `changes`."""
    settings = {
        "max_steps": 80, "report_every": 10, "evaluate_every": 80, "held_out_tokens": 16,
        "patience": 0, "tokens_per_step": 400,
    }  # fmt: skip
    return train.train_drafter(tiny_spec(model, answers, out, **(settings | changes)))


def causes(report):
    return [cause.name for cause in report.verdict.causes]


def test_answers_in_another_tokenizer_are_recognised(model, tmp_path):
    """Renumbered tokens: in range, and noise to the base model."""
    rows = AnswerRows.load(save_answers(model, tmp_path / "own.safetensors", framed(60), 16))
    shuffle = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(0))
    data = tmp_path / "renumbered.safetensors"
    replace(rows, tokens=shuffle[rows.tokens.long()].int()).save(data)
    untaught = {"learning_rate": 1e-9, "max_steps": 10, "report_every": 5, "evaluate_every": 10}
    report = trained(model, data, tmp_path / "out", **untaught)
    assert report.verdict.useless
    assert "wrong tokenizer" in causes(report)


def test_an_untrained_drafter_is_told_from_a_wrong_template(model, tmp_path):
    right = save_answers(model, tmp_path / "right.safetensors", framed(60), 16)
    wrong = save_answers(model, tmp_path / "wrong.safetensors", random_prompts(60, 8, seed=1), 16)
    few = {"max_steps": 3, "report_every": 1, "evaluate_every": 1, "learning_rate": 1e-9}
    assert causes(trained(model, right, tmp_path / "a", **few)) == ["undertrained"]
    assert causes(trained(model, wrong, tmp_path / "b", **few)) == [
        "template mismatch",
        "undertrained",
    ]


def test_a_drafter_fed_the_wrong_position_is_recognised(model, tmp_path, monkeypatch):
    """Trained on the hidden state of the position after, it does best when given that one."""
    data = save_answers(model, tmp_path / "rows.safetensors", framed(80), 20)
    from tuner.engines.redrafter.training import step

    read = step.read_rows

    def off_by_one(*arguments):
        hidden, context = read(*arguments)
        return hidden, context.roll(-1, dims=1)

    monkeypatch.setattr(step, "read_rows", off_by_one)
    seen = []
    monkeypatch.setattr(train, "judge", lambda e: seen.append(e) or judge(e))
    trained(model, data, tmp_path / "out", context_layers=())
    [evidence] = seen
    assert evidence.reading.top1_shifted > evidence.reading.top1 + 0.05
    assert names(replace(evidence, acceptance_length=1.05, loss_fall=0.0)) == ["wrong hidden state"]


def test_evidence_of_a_good_training(model, tmp_path, monkeypatch):
    data = save_answers(model, tmp_path / "rows.safetensors", framed(80), 20)
    seen = []
    monkeypatch.setattr(train, "judge", lambda e: seen.append(e) or judge(e))
    report = trained(model, data, tmp_path / "out")
    [evidence] = seen
    assert report.verdict.useless is False
    assert evidence.framed_prompts == 1.0
    assert evidence.base_agreement == 1.0, "the answers are greedy"
    assert evidence.reading.top1 > evidence.reading.top1_shuffled + 0.1


@pytest.mark.parametrize("damage", ["empty", "text", "foreign", "no rows", "large token"])
def test_unusable_answers_are_named(model, tmp_path, damage):
    path = tmp_path / "rows.safetensors"
    rows = AnswerRows.load(save_answers(model, path, framed(20), 16))
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_bytes("Grüße".encode("latin-1"))
    elif damage == "foreign":
        path = model / "model.safetensors"
    elif damage == "no rows":
        AnswerRows(rows.tokens[:0], rows.offsets[:1], rows.prompt_tokens[:0]).save(path)
    else:
        rows.tokens[3] = VOCAB
        rows.save(path)
    with pytest.raises(BadInput) as caught:
        trained(model, path, tmp_path / "out")
    assert caught.value.field == "data"
