"""Beam search against an exhaustive search over every continuation."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.tuner.engines.tiny import HIDDEN
from tuner.engines.redrafter.beam import beam_search
from tuner.engines.redrafter.drafter import Drafter, DrafterConfig


def make(vocab: int, draft_vocab: list[int], **more: int) -> tuple[Drafter, torch.nn.Embedding]:
    torch.manual_seed(1)
    config = DrafterConfig(HIDDEN, vocab, HIDDEN, 1, len(draft_vocab), 6, **more)
    drafter = Drafter(config).requires_grad_(False)
    for parameter in drafter.parameters():
        parameter.mul_(3)  # peaky enough that ranks differ
    drafter.draft_vocab = torch.tensor(draft_vocab)
    return drafter, torch.nn.Embedding(vocab, HIDDEN).requires_grad_(False)


def log_prob(drafter, embed, context, true_token, tokens) -> float:
    """Score one continuation by feeding it token by token."""
    p, d = drafter.start(context, embed.weight[true_token])
    state, total, last = torch.zeros(HIDDEN), 0.0, true_token
    column = {int(t): i for i, t in enumerate(drafter.draft_vocab)}
    for token in tokens:
        state = drafter.next_state(embed.weight[last], state, d)
        logits = drafter.logits(p, state)
        total += float(logits.log_softmax(-1)[column[token]])
        last = token
    return total


@pytest.mark.parametrize("wide", [{}, {"context_width": 16, "num_context_blocks": 1}])
@pytest.mark.parametrize("draft_vocab", [[0, 1, 2, 3, 4], [4, 2, 1]])
def test_a_wide_beam_finds_the_best_continuations(draft_vocab, wide):
    drafter, embed = make(5, draft_vocab, **wide)
    context = torch.randn(2, HIDDEN)
    beams = beam_search(drafter, embed, torch.tensor([3, 1]), context, 27, 3)
    for b, true_token in enumerate((3, 1)):
        scored = sorted(
            itertools.product(draft_vocab, repeat=3),
            key=lambda tokens: -log_prob(drafter, embed, context[b], true_token, tokens),
        )
        if len(draft_vocab) == 3:  # 27 beams hold everything: the order is the exact ranking
            assert [tuple(x[1:]) for x in beams[b].tolist()] == scored
        assert tuple(beams[b, 0, 1:].tolist()) == scored[0]
        assert set(beams[b, :, 0].tolist()) == {true_token}


def test_beams_are_distinct_and_ordered_by_score():
    drafter, embed = make(5, [0, 1, 2, 3, 4])
    context = torch.randn(1, HIDDEN)
    beams = [
        tuple(x) for x in beam_search(drafter, embed, torch.tensor([0]), context, 4, 4)[0].tolist()
    ]
    assert len(set(beams)) == 4
    scores = [log_prob(drafter, embed, context[0], 0, beam[1:]) for beam in beams]
    assert scores == sorted(scores, reverse=True)


def test_one_beam_is_the_greedy_continuation():
    drafter, embed = make(5, [0, 1, 2, 3, 4])
    context = torch.randn(1, HIDDEN)
    [[beam]] = beam_search(drafter, embed, torch.tensor([2]), context, 1, 3).tolist()
    p, d = drafter.start(context[0], embed.weight[2])
    state, expected = torch.zeros(HIDDEN), [2]
    for _ in range(3):
        state = drafter.next_state(embed.weight[expected[-1]], state, d)
        expected.append(int(drafter.logits(p, state).argmax()))
    assert beam == expected
