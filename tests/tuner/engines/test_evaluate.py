"""Acceptance from one reading of the text: what it is built of, and what serving measures."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from profiles.records import TrialConfig
from tests.bench.eval_against_live import CELLS, evaluated_counts, live_counts
from tests.tuner.engines.drafters.conftest import save_tiny_local_attention
from tests.tuner.engines.training_tiny import (
    CPU,
    HIDDEN,
    STOP,
    VOCAB,
    random_prompts,
    save_answers,
    save_model,
    tiny_spec,
)
from tuner.cli import app
from tuner.commands.prompts import read_prompts
from tuner.engines.redrafter.checkpoint import export_for_apple
from tuner.engines.redrafter.drafter import Drafter, DrafterConfig
from tuner.engines.redrafter.drafters import load_draft_method
from tuner.engines.redrafter.drafters.walk import walk
from tuner.engines.redrafter.engine import SHIPPED_DRAFTER, RedrafterEngine
from tuner.engines.redrafter.linear import compute_path
from tuner.engines.redrafter.training.answers import prepare_answers, write_answers
from tuner.engines.redrafter.training.batch_decode import Decoding
from tuner.engines.redrafter.training.evaluate import Sampling, evaluate_drafter, measure
from tuner.engines.redrafter.training.expected import expected_tokens
from tuner.engines.redrafter.training.forward import load_frozen, read_rows
from tuner.engines.redrafter.training.train import train_drafter
from tuner.errors import BadInput

LIVE_TOKENS = 14
FP32 = compute_path("fp32", CPU)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def drafter_dir(model_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("drafter")
    answers = save_answers(model_dir, folder / "rows.safetensors", random_prompts(192, 6, seed=1))
    train_drafter(tiny_spec(model_dir, answers, folder / "drafter", max_steps=60))
    return folder / "drafter"


@pytest.fixture(scope="module")
def base(model_dir):
    return load_frozen(model_dir, CPU, 128)


@pytest.fixture(scope="module")
def method(drafter_dir, model_dir, base):
    return load_draft_method(str(drafter_dir), base, model_dir, FP32)


def test_every_cell_equals_what_serving_measures(builtin_model):
    """fp32, real prompts, the built-in model and the shipped drafter: equal to the last token."""
    prompts = read_prompts("smollm2-135m", ["builtin"], 2, LIVE_TOKENS)
    report = evaluate_drafter(builtin_model, str(SHIPPED_DRAFTER), prompts, CELLS, LIVE_TOKENS)
    engine = RedrafterEngine()
    for width, length in CELLS:
        live = live_counts(engine, prompts, served(width, length), LIVE_TOKENS)
        assert evaluated_counts(report, (width, length)) == live
    engine.close()


def served(width, length, **changes):
    settings = {"quantization": "fp32", "device": "cpu", "batch_size": 2}
    return TrialConfig(beam_width=width, draft_len=length, **settings | changes)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", ["retrieval", "retrieval with a store", "causal LM", "local"])
def test_every_kind_counts_what_serving_measures(
    kind, device, model_dir, drafter_dir, base, tmp_path
):
    """fp32, temperature 0, prompts of several lengths: equal in every category and cell."""
    (tmp_path / "store.txt").write_text("w9 w10 w11 w12 w13", encoding="utf-8")
    look = {"window": 8, "num_heads": 2, "head_dim": 8}
    name = {
        "retrieval": lambda: "retrieval",
        "retrieval with a store": lambda: f"retrieval:{tmp_path / 'store.txt'}",
        "causal LM": lambda: str(model_dir),
        "local": lambda: str(
            save_tiny_local_attention(tmp_path / "local", drafter_dir, base.config, **look)
        ),
    }[kind]()
    prompts = {f"{n} words": random_prompts(9, n, seed=n) for n in (2, 7, 19)}
    grid = ((1, 3), (4, 4), (8, 2))
    report = evaluate_drafter(model_dir, name, prompts, grid, 24, device, "fp32")
    engine = RedrafterEngine()
    for width, length in grid:
        config = served(width, length, model=str(model_dir), drafter=name, device=device)
        live = live_counts(engine, prompts, config, 24)
        assert evaluated_counts(report, (width, length)) == live
    engine.close()
    every = next(cell for cell in report.everything if cell.category == "all")
    assert every.acceptance_length > 1


def test_a_smaller_draft_vocabulary_counts_what_serving_measures(model_dir, drafter_dir):
    prompts = {"a": random_prompts(12, 6, seed=2)}
    engine, lengths = RedrafterEngine(), []
    for size in (4, None):
        drafts = {"drafter": str(drafter_dir), "draft_vocab_size": size}
        report = evaluate_drafter(
            model_dir, str(drafter_dir), prompts, ((4, 4),), 24, draft_vocab_size=size
        )
        live = live_counts(engine, prompts, served(4, 4, model=str(model_dir), **drafts), 24)
        assert evaluated_counts(report, (4, 4)) == live
        lengths.append(report.everything[0].acceptance_length)
    engine.close()
    assert lengths[0] < lengths[1]
    whole = evaluate_drafter(model_dir, str(drafter_dir), prompts, None, 8, draft_vocab_size=4)
    assert {cell.beam_width for cell in whole.kept} == {1, 2, 4}


@pytest.mark.gpu
def test_a_gpu_counts_the_same_in_fp32(model_dir, drafter_dir):
    prompts = {"a": random_prompts(60, 6, seed=2)}
    grid = [(width, length) for width in (1, 3, 8) for length in (1, 2, 4)]
    sampling = Sampling(temperature=0.0)
    reports = [
        evaluate_drafter(model_dir, str(drafter_dir), prompts, grid, 32, device, "fp32", sampling)
        for device in ("cpu", "cuda")
    ]
    assert reports[0] == reports[1]


def test_positions_divide_the_whole(model_dir, drafter_dir):
    prompts = {"a": random_prompts(20, 6, seed=2)}
    report = evaluate_drafter(model_dir, str(drafter_dir), prompts, ((2, 3),), 48)
    (whole,) = (cell for cell in report.kept if cell.category == "all")
    parts = report.by_position
    assert [part.category for part in parts] == ["1-32", "33-64"]
    assert sum(part.steps for part in parts) == whole.steps > 0
    assert sum(part.committed_tokens for part in parts) == whole.committed_tokens


def chance_of(base, prefix, path, temperature):
    """The base model's probability of `path` after `prefix`, read from scratch."""
    hidden, _ = read_rows(base, torch.tensor([[*prefix, *path]]))
    logs = (base.logits(hidden[0]).float() / temperature).log_softmax(-1)
    return float(sum(logs[len(prefix) - 1 + k, token] for k, token in enumerate(path)).exp())


@torch.no_grad()
@pytest.mark.parametrize("room", [9, 2])
def test_expected_acceptance_is_the_sum_over_the_tree(base, method, room):
    prompt, answer = random_prompts(1, 6, seed=4)[0], random_prompts(1, 12, seed=5)[0]
    answers = prepare_answers(base, [prompt], [answer], ["a"], method)
    taken = {(4, length): walk(method, answers, 4, length) for length in (1, 2, 4)}
    stop = int(taken[4, 4].beams[0, 1, 1])  # a token that is drafted
    draws = Decoding(room + 2, frozenset([stop]), 0.7)
    wanted = expected_tokens(base, answers, taken, draws)
    for cell, steps in taken.items():
        for offset, beams, got in zip(
            steps.offset.tolist(), steps.beams.tolist(), wanted[cell].tolist(), strict=True
        ):
            prefix = [*prompt, *answer[: offset + 1]]
            nodes = {tuple(beam[1:end]) for beam in beams for end in range(2, len(beam) + 1)}
            counted = [n for n in nodes if stop not in n and len(n) <= room - offset]
            expected = sum(chance_of(base, prefix, node, 0.7) for node in counted)
            assert got == pytest.approx(1 + expected, rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["recurrent", "causal LM"])
def test_expected_and_drawn_acceptance_agree(base, model_dir, method, kind):
    if kind == "causal LM":
        method = load_draft_method(str(model_dir), base, model_dir, FP32)
    how = Decoding(16, frozenset([STOP]), temperature=1.0, seed=3)
    answers = write_answers(base, {"a": random_prompts(120, 6, seed=6)}, how, method)
    report = measure(base, method, answers, ((1, 2), (4, 4)), how)
    for cell in report.everything:
        assert cell.acceptance_length > 1.1
        assert cell.expected_acceptance_length == pytest.approx(cell.acceptance_length, rel=0.03)


def test_the_whole_grid_is_printed_for_either_layout(model_dir, tmp_path):
    torch.manual_seed(0)
    plain = Drafter(DrafterConfig(HIDDEN, VOCAB, 40, 1, VOCAB, 5, scored_tokens=50))
    export_for_apple(plain, tmp_path / "apple")
    arguments = [
        "eval-drafter", "--model", str(model_dir), "--drafter", str(tmp_path / "apple"),
        "--requests", "6", "--max-new-tokens", "20", "--temperature", "0.8", "--device", "cpu",
        "--json",
    ]  # fmt: skip
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    cells = {f"{width}x{length}" for width in (1, 2, 4, 8, 16, 32) for length in range(1, 6)}
    for table in (
        "acceptance_length", "acceptance_length_with_repeating", "steps",
        "expected_acceptance_length", "expected_acceptance_length_with_repeating",
    ):  # fmt: skip
        assert report[table]["all"].keys() == cells
    assert report["acceptance_length_by_position"].keys() == {"1-32"}
    assert report["prompts"] == 6 and report["positions"] > 0


def test_drafters_without_training_are_printed_too(model_dir):
    arguments = [
        "eval-drafter", "--model", str(model_dir), "--drafter", "retrieval", "--requests", "4",
        "--max-new-tokens", "20", "--grid", "1x9,4x2", "--device", "cpu", "--json",
    ]  # fmt: skip
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["acceptance_length"]["all"].keys() == {"1x9", "4x2"}
    refused = CliRunner().invoke(app, [*arguments, "--draft-vocab-size", "9"])
    assert refused.exit_code == 2
    assert "draft_vocab_size = 9: retrieval has none" in refused.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grid": ((4, 5),)}, "grid = .*the drafter was trained for draft_len 4 at most"),
        ({"sampling": Sampling(temperature=-1)}, r"temperature = -1: must be in \[0, 2\]"),
        ({"precision": "bf16"}, "precision = 'bf16': acceptance is measured in fp32 on a CPU"),
        ({"grid": ((5, 2),), "draft_vocab_size": 4}, "draft_vocab_size = 4: .*beam_width, 5"),
        ({"draft_vocab_size": 61}, "draft_vocab_size = 61: the drafter has 60 tokens"),
        ({"drafter_quantization": "fp8"}, "drafter_quantization = 'fp8': .*8.9.*leave it out"),
        ({"max_new_tokens": 2000}, "max_new_tokens = 2006: the model has 1024 positions"),
    ],
)
def test_impossible_settings_are_named(model_dir, drafter_dir, settings, message):
    prompts = {"a": random_prompts(1, 6, seed=1)}
    with pytest.raises(BadInput, match=message):
        evaluate_drafter(model_dir, str(drafter_dir), prompts, **settings)


def test_a_base_model_is_read_once_whatever_the_grid(model_dir, drafter_dir, monkeypatch):
    """The grid costs the drafter alone: the base model's forwards do not grow with it."""
    from tuner.engines.redrafter.llama import Llama

    seen = []
    forward = Llama.forward

    def counted(self, *args, **kwargs):
        seen.append(1)
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(Llama, "forward", counted)
    prompts = {"a": random_prompts(4, 6, seed=1)}
    forwards = []
    for grid in (((1, 1),), ((1, 1), (2, 4), (4, 2), (8, 4))):
        seen.clear()
        evaluate_drafter(model_dir, str(drafter_dir), prompts, grid, 24)
        forwards.append(len(seen))
    assert forwards[0] == forwards[1]
