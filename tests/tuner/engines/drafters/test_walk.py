"""Every method writes the base model's own greedy text, and the walk counts what serving does."""

from __future__ import annotations

import pytest
import torch

from tests.tuner.engines.drafters.conftest import NEW_TOKENS
from tuner.engines.redrafter.accept import accept
from tuner.engines.redrafter.drafters.walk import Text, Walked, read_text, walk
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
    texts = [read_text(tiny.base, "any", *pair, method) for pair in tiny.pairs]
    walked = walk(method, texts, width, length)
    assert walked == [Walked(taken, NEW_TOKENS - 1) for taken in steps]


@pytest.mark.parametrize("kind", METHODS)
def test_answers_of_no_token_and_of_one_take_no_step(tiny, kind):
    method = tiny.load(kind)
    prompt, answer = tiny.pairs[0]
    texts = [read_text(tiny.base, "any", prompt, answer[:n], method) for n in (0, 1, 2)]
    assert walk(method, texts, 2, 3) == [Walked(0, 0), Walked(0, 0), Walked(1, 1)]


def test_a_perfect_draft_is_taken_whole(tiny):
    method = tiny.load("retrieval")
    loop = [1, 2, 3, 4, 5]
    text = Text("any", loop * 3, loop * 4 + [1], torch.zeros(36, 1), 0)
    assert walk(method, [text], 1, 4) == [Walked(4, 20)]


def test_the_base_model_as_its_own_drafter_is_always_right(tiny):
    method = tiny.load("the base model itself")
    texts = [read_text(tiny.base, "any", *pair, method) for pair in tiny.pairs]
    assert walk(method, texts, 1, 4) == [Walked(5, 23)] * len(texts)
