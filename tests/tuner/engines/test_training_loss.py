"""The losses and their hand-made gradients, against the same formulas under autograd."""

import itertools

import pytest
import torch

from tuner.engines.redrafter.drafter import Drafter, DrafterConfig
from tuner.engines.redrafter.training import loss as losses
from tuner.engines.redrafter.training.beam_contrast import beam_contrast
from tuner.engines.redrafter.training.loss import (
    Objective,
    distillation_loss,
    distillation_targets,
)
from tuner.errors import BadInput

ROWS, VOCAB, POSITIONS, WIDTH = 10, 7, 5, 6


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(losses, "LOGITS_AT_ONCE", 3 * VOCAB)


@pytest.fixture
def batch():
    torch.manual_seed(0)
    wide = torch.float64
    return {
        "exits": torch.randn(ROWS, WIDTH, dtype=wide, requires_grad=True),
        "head": torch.randn(VOCAB, WIDTH, dtype=wide, requires_grad=True),
        "hidden": torch.randn(POSITIONS, WIDTH),
        "base_head": torch.randn(VOCAB, WIDTH),
        "text": torch.randint(0, VOCAB, (POSITIONS,)),
        "rows": torch.randint(0, POSITIONS, (ROWS,)),
        "weights": torch.rand(ROWS, dtype=wide),
    }


def by_autograd(batch, objective):
    """The definition, all logits at once."""
    base = (batch["hidden"] @ batch["base_head"].T).double()
    t = objective.temperature
    p = (base / t).softmax(-1)[batch["rows"]]
    logits = batch["exits"] @ batch["head"].T
    kl = (p * (p.log() - (logits / t).log_softmax(-1))).sum(-1)
    ce = torch.nn.functional.cross_entropy
    choice = ce(logits, base.argmax(-1)[batch["rows"]], reduction="none")
    text = ce(logits, batch["text"][batch["rows"]], reduction="none")
    s, w = objective.soft_share, objective.text_share
    each = (1 - w) * (s * t**2 * kl + (1 - s) * choice) + w * text
    return (each * batch["weights"]).sum()


@pytest.mark.parametrize(
    "objective",
    [
        Objective(),
        Objective(soft_share=1.0),
        Objective(soft_share=1.0, temperature=2.0),
        Objective(soft_share=0.0),
        Objective(soft_share=0.6, temperature=0.5, text_share=0.3),
        Objective(text_share=1.0),
    ],
)
def test_loss_and_gradients_equal_autograd(batch, objective):
    plain = by_autograd(batch, objective)
    expected = torch.autograd.grad(plain, (batch["exits"], batch["head"]))
    targets = distillation_targets(batch["hidden"], batch["base_head"], batch["text"], objective)
    loss, each, hit = distillation_loss(
        batch["exits"], batch["head"], targets, batch["rows"], batch["weights"], objective
    )
    got = torch.autograd.grad(loss, (batch["exits"], batch["head"]))
    assert torch.allclose(loss, plain, rtol=1e-5)
    assert torch.allclose((each * batch["weights"]).sum(), plain, rtol=1e-5)
    for one, other in zip(got, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
    likeliest = (batch["exits"] @ batch["head"].T).argmax(-1)
    assert hit.tolist() == (likeliest == targets.choice[batch["rows"]]).tolist()


def test_a_drafter_that_agrees_loses_nothing(batch):
    """KL, unlike cross-entropy, is zero where both distributions are the same."""
    objective = Objective(soft_share=1.0, temperature=3.0)
    targets = distillation_targets(batch["hidden"], batch["base_head"], batch["text"], objective)
    rows = torch.arange(POSITIONS)
    loss, _, hit = distillation_loss(
        batch["hidden"], batch["base_head"], targets, rows, torch.ones(POSITIONS), objective
    )
    assert loss.abs() < 1e-5 and hit.all()


def test_logits_are_never_held_together(batch, monkeypatch):
    """Every comparison sees at most `LOGITS_AT_ONCE` logits."""
    sizes = []
    compare = losses._compare

    def watched(logits, *rest):
        sizes.append(logits.numel())
        return compare(logits, *rest)

    monkeypatch.setattr(losses, "_compare", watched)
    objective = Objective()
    targets = distillation_targets(batch["hidden"], batch["base_head"], batch["text"], objective)
    distillation_loss(
        batch["exits"], batch["head"], targets, batch["rows"], batch["weights"], objective
    )
    assert sizes == [21, 21, 21, 7]


@pytest.fixture
def drafter():
    torch.manual_seed(3)
    return Drafter(DrafterConfig(8, 12, 8, 1, 9, 3, (), 10, 1)), torch.nn.Embedding(12, 8)


def contrast_by_autograd(drafter, embed, context, truth, width):
    """One position at a time, every prefix scored from scratch."""
    total, count = 0.0, 0
    for place in range(len(truth)):
        true = truth[place].tolist()

        def score(prefix, place=place, true=true):
            p, d = drafter.start(context[place], embed(truth[place, 0]))
            state, log = torch.zeros_like(d), torch.zeros(())
            for fed, next_token in itertools.pairwise([true[0], *prefix]):
                state = drafter.next_state(embed(torch.tensor(fed)), state, d)
                log = log + drafter.logits(p, state).log_softmax(-1)[words.index(next_token)]
            return log

        words = drafter.draft_vocab.tolist()
        beams = [()]
        for depth in range(1, len(true)):
            if tuple(true[1:depth]) not in beams or true[depth] not in words:
                break
            grown = [(*beam, word) for beam in beams for word in words]
            beams = sorted(grown, key=lambda b: -score(b).item())[:width]
            goal = tuple(true[1 : depth + 1])
            rivals = [goal, *(beam for beam in beams if beam != goal)]
            total = total - torch.stack([score(b) for b in rivals]).log_softmax(0)[0]
            count += 1
    return total / count, count


def test_beam_contrast_equals_a_slow_reference(drafter):
    network, embed = drafter
    context = torch.randn(6, 8)
    truth = torch.randint(0, 9, (6, 4))
    truth[1, 2:] = -1
    truth[2, 1] = 11  # outside the draft vocabulary: nothing can be learned from there
    expected, count = contrast_by_autograd(network, embed, context, truth, 3)
    assert 6 < count < 17, "the true path should survive in some places and be lost in others"
    got = beam_contrast(network, embed, context, truth, 3)
    assert torch.allclose(got, expected, rtol=1e-5)
    parameters = list(network.parameters())
    for one, other in zip(
        torch.autograd.grad(got, parameters, allow_unused=True),
        torch.autograd.grad(expected, parameters, allow_unused=True),
        strict=True,
    ):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"soft_share": 1.5}, "soft_share"),
        ({"text_share": -0.1}, "text_share"),
        ({"horizon_decay": 2.0}, "horizon_decay"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
    ],
)
def test_bad_objectives_are_named(changes, field):
    with pytest.raises(BadInput) as caught:
        Objective(**changes)
    assert caught.value.field == field
