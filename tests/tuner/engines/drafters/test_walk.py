"""Every method writes the base model's own greedy text, and the walk counts what serving does."""

from __future__ import annotations

import pytest
import torch

from tests.tuner.engines.drafters.conftest import NEW_TOKENS, answers_for, counts
from tuner.engines.redrafter.accept import accept
from tuner.engines.redrafter.drafters import walk as walk_module
from tuner.engines.redrafter.drafters.walk import walk
from tuner.engines.redrafter.training.forward import read_rows
from tuner.engines.redrafter.tree import build_tree

METHODS = (
    "recurrent", "retrieval", "retrieval with a store", "causal LM", "the base model itself",
    "local attention",
)  # fmt: skip


@torch.inference_mode()
def serve(base, method, prompt, width, length, place=1):
    """A decode loop without a cache: one request, one beam after the other."""

    def read(rows):
        hidden, context = read_rows(base, torch.tensor(rows), method.context_layers)
        return base.logits(hidden).argmax(-1), context

    choice, context = read([prompt])
    text, context = [*prompt, int(choice[0, -1])], context[0]
    window = max(1, method.context_window)
    method.reserve(3, len(prompt) + NEW_TOKENS + 1 + width * length)
    method.join(place, text, context[-window:])
    newest, steps = context[-1:], 0
    while len(text) < len(prompt) + NEW_TOKENS:
        root = torch.tensor(text[-1:])
        beams = method.propose(torch.tensor([place]), root, newest, width, length)
        assert beams.shape == (1, width, 1 + length) and beams[0, :, 0].eq(root).all()
        tree = build_tree(beams)
        chosen, seen = read([[*text[:-1], *beam] for beam in beams[0].tolist()])
        choices = torch.zeros_like(tree.tokens)
        contexts = torch.zeros(tree.tokens.shape[1], context.shape[-1])
        choices[0, tree.node_of[0]] = chosen[:, -1 - length :]
        contexts[tree.node_of[0]] = seen[:, -1 - length :]
        accepted = accept(tree, choices)
        kept = int(accepted.length) + 1
        committed = accepted.tokens[0, :kept].tolist()[: len(prompt) + NEW_TOKENS - len(text)]
        chosen_from = contexts[accepted.path[0, :kept]]
        text, newest, steps = text + committed, chosen_from[-1:], steps + 1
        method.observe([place], [committed], chosen_from.unsqueeze(0))
    method.leave(place)
    return text[len(prompt) :], steps


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize(("width", "length"), [(1, 4), (4, 4), (30, 2)])
def test_the_text_is_the_base_models_and_the_walk_counts_its_steps(tiny, kind, width, length):
    method = tiny.load(kind)
    steps = []
    for prompt, answer in tiny.pairs:
        text, taken = serve(tiny.base, method, prompt, width, length)
        assert text == answer
        steps.append(taken)
    answers = answers_for(tiny, method)
    walked = counts(answers, walk(method, answers, width, length))
    assert walked == [(taken, NEW_TOKENS - 1) for taken in steps]


@pytest.mark.parametrize("kind", METHODS)
def test_answers_of_no_token_and_of_one_take_no_step(tiny, kind):
    method = tiny.load(kind)
    prompt, answer = tiny.pairs[0]
    answers = answers_for(tiny, method, [(prompt, answer[:n]) for n in (0, 1, 2)])
    assert counts(answers, walk(method, answers, 2, 3)) == [(0, 0), (0, 0), (1, 1)]
    nothing = answers_for(tiny, method, [(prompt, answer[:1])])
    assert counts(nothing, walk(method, nothing, 2, 3)) == [(0, 0)]


def test_a_perfect_draft_is_taken_whole(tiny):
    method = tiny.load("retrieval")
    loop = [1, 2, 3, 4, 5]
    answers = answers_for(tiny, method, [(loop * 3, [*loop * 4, 1])])
    steps = walk(method, answers, 1, 4)
    assert steps.offset.tolist() == [0, 5, 10, 15] and steps.committed.tolist() == [5] * 4
    assert steps.beams.tolist() == [[loop]] * 4


def test_the_base_model_as_its_own_drafter_is_always_right(tiny):
    method = tiny.load("the base model itself")
    answers = answers_for(tiny, method)
    assert counts(answers, walk(method, answers, 1, 4)) == [(5, 23)] * len(tiny.pairs)


@pytest.mark.parametrize("kind", METHODS)
def test_it_does_not_matter_how_many_walk_side_by_side(tiny, kind, monkeypatch):
    method = tiny.load(kind)
    answers = answers_for(tiny, method)
    together = counts(answers, walk(method, answers, 3, 4))
    monkeypatch.setattr(walk_module, "SIDE_BY_SIDE", 2)
    assert counts(answers, walk(method, answers, 3, 4)) == together
