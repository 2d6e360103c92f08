"""Looking back: the ring drafts what training saw, its directory is checked, training helps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.tuner.engines.drafters.conftest import (
    answers_for,
    counts,
    save_tiny_local_attention,
)
from tests.tuner.engines.tiny import edit_config, save_tiny_drafter
from tuner.engines.redrafter.drafters.local_attention_training import (
    LocalAttentionSpec,
    train_local_attention,
    unroll,
)
from tuner.engines.redrafter.drafters.look_back import LookBackConfig, load_local_attention
from tuner.engines.redrafter.drafters.walk import walk
from tuner.engines.redrafter.training.batch import Batch
from tuner.engines.redrafter.training.forward import read_rows
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.errors import BadInput


@torch.no_grad()
def test_the_ring_drafts_what_training_unrolls(tiny):
    method = tiny.load("local attention")
    prompt, answer = tiny.pairs[-1]
    method.reserve(1, 80)
    tokens = [*prompt, *answer]
    _, context = read_rows(tiny.base, torch.tensor([tokens]), method.context_layers)
    method.join(1, tokens[: len(prompt) + 1], context[0, : len(prompt)])
    begin = len(prompt) - 1
    for grown in (1, 3, 2, 5, 4):  # past the ring's end and around
        new = tokens[begin + 2 : begin + 2 + grown]
        method.observe([1], [new], context[:, begin + 1 : begin + 1 + grown])
        begin += grown
        beams = method.propose(torch.tensor([1]), torch.tensor(new[-1:]), context[:, begin], 1, 5)
        row = torch.tensor([[*tokens[: begin + 1], *beams[0, 0].tolist()]])
        _, seen = read_rows(tiny.base, row, method.context_layers)
        batch = Batch(row, torch.tensor([begin]), torch.tensor([row.shape[1] - 1]))
        exits = unroll(tiny.base, method.recurrent, method.look_back, seen, batch)
        expected = method.recurrent.draft_vocab[method.recurrent.head(exits).argmax(-1)]
        assert beams[0, 0, 1:].tolist() == expected[:5].tolist()


def test_what_lies_before_the_window_does_not_count(tiny):
    method = tiny.load("local attention")
    drafts = []
    for first in (1, 2):
        method.reserve(1, 80)
        torch.manual_seed(0)
        old, new = torch.full((1, 64), float(first)), torch.randn(12, 64)
        method.join(1, [1] * 14, torch.cat((old, new)))
        drafts.append(method.propose(torch.tensor([1]), torch.tensor([1]), new[-1:], 2, 3))
    assert torch.equal(*drafts)


@pytest.fixture
def folder(tiny, tmp_path):
    recurrent = save_tiny_drafter(tmp_path / "recurrent", context_layers=(1,))
    return save_tiny_local_attention(tmp_path / "attention", recurrent, tiny.base.config)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda f: edit_config(f, num_heads=4), "size mismatch"),
        (lambda f: edit_config(f, window=0), "window"),
        (lambda f: edit_config(f, colour="red"), "colour"),
        (lambda f: (f / "config.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "attention.safetensors").write_bytes(b"torn"), "cannot be read"),
        (lambda f: (f / "attention.safetensors").unlink(), "cannot be read"),
        (lambda f: edit_config(f / "recurrent", hidden_size=8), "recurrent"),
    ],
)
def test_a_damaged_directory_is_refused_by_name(tiny, folder, change, named):
    change(folder)
    with pytest.raises(BadInput, match=named):
        load_local_attention(folder, tiny.base.config)


def test_training_teaches_it_to_look_back(tiny, tmp_path):
    """From a useless recurrent drafter: what it gains it cannot have from there alone."""
    import numpy as np

    pairs = [(prompt, np.array(answer, dtype=np.int32)) for prompt, answer in tiny.pairs]
    AnswerRows.join(pairs).save(tmp_path / "rows.safetensors")
    recurrent = save_tiny_drafter(tmp_path / "recurrent", context_layers=(1,), scale=0.5)
    spec = LocalAttentionSpec(
        tiny.model_dir, tmp_path / "rows.safetensors", tmp_path / "out", recurrent_dir=recurrent,
        look_back=LookBackConfig(window=16, num_heads=2, head_dim=16), tokens_per_step=256,
        max_steps=120, learning_rate=1e-2,
    )  # fmt: skip
    seen = []
    report = train_local_attention(spec, seen.append)
    assert report.steps == 120 and report.loss == seen[-1].loss < seen[0].loss
    from tuner.engines.redrafter.drafters import load_draft_method
    from tuner.engines.redrafter.linear import compute_path

    steps = {}
    for name in (recurrent, tmp_path / "out"):
        compute = compute_path("fp32", torch.device("cpu"))
        method = load_draft_method(str(name), tiny.base, tiny.model_dir, compute)
        steps[name] = len(walk(method, answers_for(tiny, method), 1, 4).row)
    assert steps[tmp_path / "out"] < 0.7 * steps[recurrent]


def test_an_untrained_look_back_adds_nothing(tiny, tmp_path):
    recurrent = tiny.load("recurrent")
    method = tiny.load("local attention")
    nn.init.zeros_(method.look_back.output.weight)
    method.recurrent = recurrent.drafter
    walked = []
    for one in (recurrent, method):
        answers = answers_for(tiny, one)
        walked.append(counts(answers, walk(one, answers, 4, 4)))
    assert walked[0] == walked[1]
