"""A drafter trained on a tiny model's own answers, and the acceptance measured on it."""

import json
from pathlib import Path

import pytest
import torch

from profiles.statistics import repeats_itself
from tests.tuner.engines.training_tiny import (
    CPU,
    STOP,
    random_prompts,
    save_answers,
    save_model,
)
from tests.tuner.engines.training_tiny import tiny_spec as spec
from tuner.engines.redrafter.beam import beam_search
from tuner.engines.redrafter.checkpoint import load_drafter, save_drafter
from tuner.engines.redrafter.training import evaluate, generate, train
from tuner.engines.redrafter.training.answers import SHORT
from tuner.engines.redrafter.training.batch import BatchReader
from tuner.engines.redrafter.training.batch_decode import Decoding, decode
from tuner.engines.redrafter.training.forward import load_frozen, read_rows
from tuner.engines.redrafter.training.openings import draw_openings
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.errors import BadInput


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="module")
def data(model_dir, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.safetensors"
    return save_answers(model_dir, path, random_prompts(192, 6, seed=1))


@pytest.fixture(scope="module")
def trained(model_dir, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("drafter")
    seen = []
    report = train.train_drafter(spec(model_dir, data, out), seen.append)
    return out, report, seen


PROMPTS = {"a": random_prompts(12, 6, seed=2), "b": random_prompts(6, 9, seed=3)}


def by_cell(cells):
    return {(c.category, c.beam_width, c.draft_len): c for c in cells}


def test_training_beats_an_untrained_drafter(model_dir, data, trained, tmp_path):
    out, report, seen = trained
    train.train_drafter(spec(model_dir, data, tmp_path, max_steps=1, learning_rate=1e-9))
    grid = ((1, 3), (4, 4))
    after = by_cell(evaluate.evaluate_drafter(model_dir, str(out), PROMPTS, grid, 24).everything)
    before = by_cell(
        evaluate.evaluate_drafter(model_dir, str(tmp_path), PROMPTS, grid, 24).everything
    )
    for cell in (("all", 1, 3), ("all", 4, 4)):
        assert after[cell].acceptance_length > before[cell].acceptance_length + 0.8
    assert report.steps == 200 and report.loss < seen[0].loss
    assert report.acceptance_length > before["all", 4, 4].acceptance_length + 0.8
    assert report.verdict.useless is False
    assert len(report.loss_by_draft) == 4


def test_a_drafter_without_context_network_trains(model_dir, data, tmp_path):
    plain = spec(model_dir, data, tmp_path, context_layers=(), context_width=0,
                 num_context_blocks=0, max_steps=60, exit_dim=24, report_every=10)  # fmt: skip
    seen = []
    train.train_drafter(plain, seen.append)
    assert seen[-1].loss < seen[0].loss - 0.3
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["exit_dim"] == 24 and config["trained_draft_len"] == 4


def slow_walk(base, drafter, prompt, answer, width, length):
    """Acceptance the plain way: one position, one beam search, one comparison at a time."""
    tokens = [*prompt, *answer]
    _, contexts = read_rows(base, torch.tensor([tokens]), drafter.config.context_layers)
    at, steps, committed = len(prompt) - 1, 0, 0
    while at + 1 < len(tokens) - 1:
        beams = beam_search(
            drafter, base.embed_tokens, torch.tensor(tokens[at + 1 : at + 2]), contexts[:, at],
            width, length,
        )[0].tolist()  # fmt: skip
        rest = tokens[at + 2 :]
        best = 0
        for beam in beams:
            agreed = 0
            for mine, theirs in zip(beam[1:], rest, strict=False):
                if mine != theirs:
                    break
                agreed += 1
            best = max(best, agreed)
        steps += 1
        committed += min(best + 1, len(rest))
        at += best + 1
    return steps, committed


@torch.no_grad()
def test_acceptance_equals_a_slow_reference(model_dir, trained):
    out, _, _ = trained
    grid = ((1, 1), (1, 4), (3, 2), (8, 4))
    report = evaluate.evaluate_drafter(model_dir, str(out), PROMPTS, grid, 24)
    base = load_frozen(model_dir, CPU, 128)
    drafter = load_drafter(out, base.config).float()
    cells, kept = by_cell(report.everything), by_cell(report.kept)
    for width, length in grid:
        sums = {"a": [0, 0], "b": [0, 0]}
        good = [0, 0]
        for name, prompts in PROMPTS.items():
            for prompt in prompts:
                answer = decode(base, [prompt], Decoding(24, frozenset([STOP])))[0]
                answer = answer[answer >= 0].tolist()
                counted = slow_walk(base, drafter, prompt, answer, width, length)
                sums[name] = [x + y for x, y in zip(sums[name], counted, strict=True)]
                if len(answer) >= SHORT and not repeats_itself(answer):
                    good = [x + y for x, y in zip(good, counted, strict=True)]
        for name, (steps, committed) in sums.items():
            cell = cells[name, width, length]
            assert (cell.steps, cell.committed_tokens) == (steps, committed)
        cell = kept["all", width, length]
        assert [cell.steps, cell.committed_tokens] == good


@torch.no_grad()
def test_batch_decoding_equals_one_by_one(model_dir):
    base = load_frozen(model_dir, CPU, 128)
    prompts = [[7, 8, 9], [10, 11, 12, 13, 14], [20], [30, 31, 32, 33]]
    together = decode(base, prompts, Decoding(40, frozenset([STOP])))
    for prompt, got in zip(prompts, together.tolist(), strict=True):
        tokens = list(prompt)
        for expected in got:
            if expected < 0:
                assert tokens[-1] == STOP
                break
            hidden, _ = read_rows(base, torch.tensor([tokens]))
            tokens.append(int(base.logits(hidden[0, -1]).argmax()))
            assert tokens[-1] == expected


def test_sampling_is_repeatable_and_varied(model_dir):
    base = load_frozen(model_dir, CPU, 128)
    how = Decoding(20, frozenset([STOP]), temperature=2.0, seed=3)
    first, second = (decode(base, [[5, 6]] * 4, how) for _ in range(2))
    assert torch.equal(first, second)
    assert len({tuple(row) for row in first.tolist()}) > 1


def test_batches_start_drafts_where_serving_does(data):
    rows = AnswerRows.load(data)
    batch = next(iter(BatchReader(rows, 256, 0, CPU)))
    flat, length = batch.tokens.flatten(), batch.tokens.shape[1]
    assert ((batch.positions % length) >= 5).all()  # the prompts' last token, and later
    assert (batch.positions + 2 <= batch.last).all()
    for end in batch.last.unique().tolist():
        answer = flat[end // length * length + 6 : end + 1].tolist()
        assert answer[-1] == STOP or len(answer) == 32


def test_generated_rows(model_dir, tmp_path):
    out = tmp_path / "rows.safetensors"
    report = generate.generate_answers(
        generate.GenerateSpec(
            model_dir,
            out,
            prompts=200,
            max_turn_tokens=60,
            max_new_tokens=24,
            turn_temperature=3.0,
            batch_size=50,
        )
    )
    rows = AnswerRows.load(out)
    assert len(rows) == report.rows > 20
    assert rows.answer_tokens == report.answer_tokens
    first = rows.tokens[: rows.prompt_tokens[0]].tolist()
    assert first[0] == 3 and first[-2:] == [STOP, 4]  # the template around the turn


def test_repeating_rows_agrees_with_the_statistics():
    chance = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 50_000, (6, 60), generator=chance)
    rows[1] = rows[1, :4].repeat(15)
    rows[2, 20:] = rows[2, :10].repeat(4)
    rows[3, 30:] = rows[3, :30]
    rows[4, 9:] = -1
    rows[5, 5:] = -1
    expected = [repeats_itself([t for t in row if t >= 0]) for row in rows.tolist()]
    assert generate.repeating_rows(rows).tolist() == expected
    assert True in expected and False in expected


def test_openings_vary_and_fill_their_slots():
    openings = draw_openings(3000, seed=1)
    assert openings == draw_openings(3000, seed=1)
    assert len({o.text for o in openings}) > 1000
    assert not any("{" in o.text or o.text.endswith(" ") for o in openings)
    assert any(o.is_stub for o in openings) and any(o.complete for o in openings)


def test_a_saved_drafter_loads_again(model_dir, trained, tmp_path):
    out, _, _ = trained
    base = load_frozen(model_dir, CPU, 64)
    drafter = load_drafter(out, base.config)
    save_drafter(drafter, tmp_path)
    again = load_drafter(tmp_path, base.config)
    assert again.config == drafter.config
    for name, tensor in drafter.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "drafter.safetensors"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_blocks": 0}, "num_blocks"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"draft_len": 0}, "draft_len"),
        ({"evaluate_every": 75}, "evaluate_every"),
        ({"context_width": 0}, "num_context_blocks"),
        ({"context_layers": (3,)}, "context_layers"),
        ({"draft_vocab_size": 65}, "draft_vocab_size"),
        ({"data": Path("missing.safetensors")}, "data"),
    ],
)
def test_bad_training_input_is_named(model_dir, data, tmp_path, changes, field):
    with pytest.raises(BadInput) as caught:
        train.train_drafter(spec(model_dir, data, tmp_path, **changes))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("prompts", "grid", "field"),
    [({}, ((1, 1),), "prompts"), ({"a": [[]]}, ((1, 1),), "prompts"), (PROMPTS, ((0, 1),), "grid")],
)
def test_bad_evaluation_input_is_named(model_dir, trained, prompts, grid, field):
    with pytest.raises(BadInput) as caught:
        evaluate.evaluate_drafter(model_dir, str(trained[0]), prompts, grid)
    assert caught.value.field == field
