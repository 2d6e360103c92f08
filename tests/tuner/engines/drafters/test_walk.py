"""Every method writes the base model's own greedy text, and the walk counts what serving does."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

from tests.tuner.engines.tiny import VOCAB
from tuner.engines.redrafter.accept import accept
from tuner.engines.redrafter.drafters import load_draft_method
from tuner.engines.redrafter.drafters.walk import Text, Walked, read_text, walk
from tuner.engines.redrafter.linear import compute_path
from tuner.engines.redrafter.training.batch_decode import Decoding, decode
from tuner.engines.redrafter.training.forward import load_frozen, read_rows
from tuner.engines.redrafter.tree import build_tree

CPU = torch.device("cpu")
METHODS = ("recurrent", "retrieval")
NEW_TOKENS = 40


@pytest.fixture(scope="module")
def tiny(tiny_llama, tiny_drafter):
    base = load_frozen(tiny_llama, CPU, 128)
    draw = random.Random(0)
    prompts = [[draw.randrange(VOCAB) for _ in range(length)] for length in (1, 2, 5, 17, 30)]
    out = decode(base, prompts, Decoding(NEW_TOKENS, frozenset())).tolist()
    return SimpleNamespace(
        base=base,
        folder=tiny_llama,
        pairs=list(zip(prompts, out, strict=True)),
        names={"recurrent": str(tiny_drafter), "retrieval": "retrieval"},
    )


def load(tiny, kind):
    return load_draft_method(tiny.names[kind], tiny.base, tiny.folder, compute_path("fp32", CPU))


@torch.inference_mode()
def serve(base, method, prompt, width, length, place=1):
    """A decode loop without a cache: one request, one beam after the other."""

    def read(tokens):
        hidden, context = read_rows(base, torch.tensor([tokens]), method.context_layers)
        return base.logits(hidden[0]).argmax(-1), context[0]

    choice, context = read(prompt)
    text = [*prompt, int(choice[-1])]
    window = max(1, method.context_window)
    method.reserve(3, len(prompt) + NEW_TOKENS + 1 + width * length)
    method.join(place, text, context[-window:])
    newest, steps = context[-1:], 0
    while len(text) < len(prompt) + NEW_TOKENS:
        root = torch.tensor(text[-1:])
        beams = method.propose(torch.tensor([place]), root, newest, width, length)
        assert beams.shape == (1, width, 1 + length) and beams[0, :, 0].eq(root).all()
        tree = build_tree(beams)
        choices = torch.zeros_like(tree.tokens)
        contexts = torch.zeros(tree.tokens.shape[1], context.shape[-1])
        for beam, nodes in zip(beams[0].tolist(), tree.node_of[0], strict=True):
            chosen, seen = read([*text[:-1], *beam])
            choices[0, nodes], contexts[nodes] = chosen[-1 - length :], seen[-1 - length :]
        accepted = accept(tree, choices)
        kept = int(accepted.length) + 1
        committed = accepted.tokens[0, :kept].tolist()[: len(prompt) + NEW_TOKENS - len(text)]
        chosen_from = contexts[accepted.path[0, :kept]]
        text, newest, steps = text + committed, chosen_from[-1:], steps + 1
        method.observe([place], [committed], chosen_from.unsqueeze(0))
    method.leave(place)
    return text[len(prompt) :], steps


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize(("width", "length"), [(1, 1), (1, 4), (4, 4), (30, 2)])
def test_the_text_is_the_base_models_and_the_walk_counts_its_steps(tiny, kind, width, length):
    method = load(tiny, kind)
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
    method = load(tiny, kind)
    prompt, answer = tiny.pairs[0]
    texts = [read_text(tiny.base, "any", prompt, answer[:n], method) for n in (0, 1, 2)]
    assert walk(method, texts, 2, 3) == [Walked(0, 0), Walked(0, 0), Walked(1, 1)]


def test_a_perfect_draft_is_taken_whole(tiny):
    method = load(tiny, "retrieval")
    loop = [1, 2, 3, 4, 5]
    text = Text("any", loop * 3, loop * 4 + [1], torch.zeros(36, 1), 0)
    assert walk(method, [text], 1, 4) == [Walked(4, 20)]


def test_the_walk_agrees_with_the_recurrent_drafters_own_evaluation(tiny):
    from tuner.engines.redrafter.training.evaluate import prepare_answers
    from tuner.engines.redrafter.training.evaluate import walk as recurrent_walk

    method = load(tiny, "recurrent")
    prompts, answers = zip(*tiny.pairs, strict=True)
    layers = method.context_layers
    prepared = prepare_answers(tiny.base, prompts, answers, ["any"] * len(prompts), layers)
    steps, committed = recurrent_walk(tiny.base, method.drafter, prepared, 4, 4)
    texts = [read_text(tiny.base, "any", *pair, method) for pair in tiny.pairs]
    expected = [Walked(*pair) for pair in zip(steps.tolist(), committed.tolist(), strict=True)]
    assert walk(method, texts, 4, 4) == expected
