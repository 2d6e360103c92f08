"""Acceptance from one reading of the text: what it is built of, and what serving measures."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from tests.bench.eval_against_live import CELLS, evaluated_counts, live_counts
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
from tuner.engines.redrafter.beam import beam_search, grow
from tuner.engines.redrafter.checkpoint import export_for_apple, load_drafter
from tuner.engines.redrafter.drafter import Drafter, DrafterConfig
from tuner.engines.redrafter.engine import SHIPPED_DRAFTER, RedrafterEngine
from tuner.engines.redrafter.training.answers import prepare_answers, write_answers
from tuner.engines.redrafter.training.evaluate import Sampling, evaluate_drafter, measure
from tuner.engines.redrafter.training.expected import (
    Draws,
    path_chances,
    read_text,
    sum_of_tree,
)
from tuner.engines.redrafter.training.forward import load_frozen, read_rows
from tuner.engines.redrafter.training.reach import reach, walk
from tuner.engines.redrafter.training.train import train_drafter
from tuner.errors import BadInput

LIVE_TOKENS = 14


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
def drafter(drafter_dir, base):
    return load_drafter(drafter_dir, base.config).float()


def beams_of(grown, true_token):
    """The beams that a search has made, put together from their parents."""
    beams = true_token.view(-1, 1, 1)
    for step in grown:
        parent = step.parent.unsqueeze(-1).expand(-1, -1, beams.shape[-1])
        beams = torch.cat((beams.gather(1, parent), step.token.unsqueeze(-1)), dim=-1)
    return beams


@torch.no_grad()
@pytest.mark.parametrize("width", [1, 3, 8, 20])
def test_a_search_passes_through_every_shorter_one(width):
    torch.manual_seed(0)
    drafter = Drafter(DrafterConfig(HIDDEN, VOCAB, HIDDEN, 1, 12, 6))
    embed, tokens = torch.nn.Embedding(VOCAB, HIDDEN), torch.randint(0, VOCAB, (5,))
    context = torch.randn(5, HIDDEN)
    grown = list(grow(drafter, embed, tokens, context, width, 5))
    for depth in range(1, 6):
        expected = beam_search(drafter, embed, tokens, context, width, depth)
        assert torch.equal(beams_of(grown[:depth], tokens), expected)


def test_every_cell_equals_what_serving_measures(builtin_model):
    """fp32, real prompts, the built-in model and the shipped drafter: equal to the last token."""
    prompts = read_prompts("smollm2-135m", ["builtin"], 2, LIVE_TOKENS)
    report = evaluate_drafter(builtin_model, SHIPPED_DRAFTER, prompts, CELLS, LIVE_TOKENS)
    engine = RedrafterEngine()
    for cell in CELLS:
        live = live_counts(engine, prompts, cell, LIVE_TOKENS, "fp32", "cpu", batch_size=2)
        assert evaluated_counts(report, cell) == live
    engine.close()


@pytest.mark.gpu
def test_a_gpu_counts_the_same_in_fp32(model_dir, drafter_dir):
    prompts = {"a": random_prompts(60, 6, seed=2)}
    grid = [(width, length) for width in (1, 3, 8) for length in (1, 2, 4)]
    sampling = Sampling(temperature=0.0)
    reports = [
        evaluate_drafter(model_dir, drafter_dir, prompts, grid, 32, device, "fp32", sampling)
        for device in ("cpu", "cuda")
    ]
    assert reports[0] == reports[1]


def test_positions_divide_the_whole(model_dir, drafter_dir):
    prompts = {"a": random_prompts(20, 6, seed=2)}
    report = evaluate_drafter(model_dir, drafter_dir, prompts, ((2, 3),), 48)
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
def test_expected_acceptance_is_the_sum_over_the_tree(base, drafter, room):
    prompt, answer = random_prompts(1, 6, seed=4)[0], random_prompts(1, 12, seed=5)[0]
    layers = drafter.config.context_layers
    answers = prepare_answers(base, [prompt], [answer], ["a"], layers)
    text = read_text(base, answers.tokens[0])
    offsets = torch.tensor([0, 3, 7])
    at = int(answers.start[0]) + offsets
    true_token, context = text.tokens[at + 1], answers.contexts[0, offsets]
    grown = list(grow(drafter, base.embed_tokens, true_token, context, 4, 4))
    stop = int(grown[0].token[0, 1])  # a token that is drafted
    chances = path_chances(base, text, at, grown, Draws(0.7, frozenset([stop]), 20))
    for length in (1, 2, 4):
        got = sum_of_tree(grown[:length], chances[:length], torch.full((3,), room))
        beams = beams_of(grown[:length], true_token).tolist()
        for row in range(3):
            prefix = [*text.tokens[: int(at[row]) + 2].tolist()]
            nodes = {tuple(beam[1 : 1 + k]) for beam in beams[row] for k in range(1, length + 1)}
            counted = [n for n in nodes if stop not in n and len(n) <= room]
            expected = sum(chance_of(base, prefix, node, 0.7) for node in counted)
            assert got[row] == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_expected_and_drawn_acceptance_agree(base, drafter):
    prompts = {"a": random_prompts(120, 6, seed=6)}
    stops = frozenset([STOP])
    layers = drafter.config.context_layers
    answers = write_answers(base, prompts, 16, stops, layers, temperature=1.0, seed=3)
    report = measure(base, drafter, answers, ((1, 2), (4, 4)), Draws(1.0, stops, 16))
    for cell in report.everything:
        assert cell.acceptance_length > 1.1
        assert cell.expected_acceptance_length == pytest.approx(cell.acceptance_length, rel=0.03)


def test_an_answer_of_one_token_takes_no_step(base, drafter):
    layers = drafter.config.context_layers
    answers = prepare_answers(base, [[5, 6]], [[STOP]], ["a"], layers)
    steps = walk(reach(base, drafter, answers, 2, 2)[1], answers.drafted)
    assert not steps.begins.any() and not steps.committed.any()


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grid": ((4, 5),)}, "grid = .*the drafter was trained for draft_len 4 at most"),
        ({"sampling": Sampling(temperature=-1)}, r"temperature = -1: must be in \[0, 2\]"),
        ({"precision": "bf16"}, "precision = 'bf16': acceptance is measured in fp32 on a CPU"),
        ({"max_new_tokens": 2000}, "max_new_tokens = 2006: the model has 1024 positions"),
    ],
)
def test_impossible_settings_are_named(model_dir, drafter_dir, settings, message):
    prompts = {"a": random_prompts(1, 6, seed=1)}
    with pytest.raises(BadInput, match=message):
        evaluate_drafter(model_dir, drafter_dir, prompts, **settings)


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
        evaluate_drafter(model_dir, drafter_dir, prompts, grid, 24)
        forwards.append(len(seen))
    assert forwards[0] == forwards[1]
