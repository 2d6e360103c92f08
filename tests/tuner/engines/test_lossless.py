"""Sampling through speculation has exactly the base model's distribution.

The tiny model writes three tokens over a vocabulary of five: 125 texts whose probabilities are
computed exactly. Thousands of served requests must be distributed as they are. The published rule
(keep a draft with probability min(1, p/q), take the longest of W beams, else sample from the
residual) is run through the same test and must fail it.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from scipy.stats import chisquare

from profiles.records import RequestRecord, TrialConfig
from tests.tuner.engines.tiny import save_tiny_drafter, save_tiny_llama
from tuner.engines.base import Request
from tuner.engines.redrafter import generation
from tuner.engines.redrafter.accept import Accepted
from tuner.engines.redrafter.drafters import recurrent
from tuner.engines.redrafter.engine import RedrafterEngine

VOCAB, LENGTH, DRAWS, TEMPERATURE = 5, 3, 6000, 0.8
PROMPT = (1, 3, 0, 2)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lossless")
    model = save_tiny_llama(folder / "model", vocab=VOCAB, initializer_range=0.15)
    return model, save_tiny_drafter(folder / "drafter", vocab=VOCAB, scale=2.0)


@pytest.fixture(scope="module")
def exact(models):
    """Probability of every text of three tokens, from transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(models[0], dtype=torch.float32)
    probability = {}
    for text in itertools.product(range(VOCAB), repeat=LENGTH):
        with torch.no_grad():
            logits = model(torch.tensor([PROMPT + text])).logits[0] / TEMPERATURE
        rows = logits.softmax(-1)[len(PROMPT) - 1 : -1]
        probability[text] = float(rows.gather(1, torch.tensor(text).unsqueeze(1)).prod())
    assert sum(probability.values()) == pytest.approx(1.0, abs=1e-5)
    return probability


def draw_texts(models, seed: int = 0, draws: int = DRAWS, **knobs: int) -> list[tuple[int, ...]]:
    engine = RedrafterEngine()
    model, drafter = map(str, models)
    fixed = {"model": model, "drafter": drafter, "device": "cpu", "quantization": "fp32"}
    engine.prepare(TrialConfig(**fixed, batch_size=256, **knobs), 16)
    requests = [Request(str(i), PROMPT, LENGTH, TEMPERATURE) for i in range(draws)]
    records = engine.serve(requests, seed)
    return [tuple(r.output_token_ids) for r in records if isinstance(r, RequestRecord)]


def p_value(texts: list[tuple[int, ...]], exact: dict[tuple[int, ...], float]) -> float:
    """Chi-square test of the observed texts; rare texts are pooled."""
    counts = dict.fromkeys(exact, 0)
    for text in texts:
        counts[text] += 1
    common = [t for t, p in exact.items() if p * len(texts) >= 5]
    rare = [t for t in exact if t not in common]
    observed = [counts[t] for t in common] + [sum(counts[t] for t in rare)]
    expected = [exact[t] * len(texts) for t in common] + [sum(exact[t] for t in rare) * len(texts)]
    if not rare:
        observed, expected = observed[:-1], expected[:-1]
    scale = sum(observed) / sum(expected)  # fp32 leaves the sum off by 1e-6
    return float(chisquare(observed, [e * scale for e in expected]).pvalue)


@pytest.mark.parametrize(
    ("beam_width", "draft_len"), [(1, 0), (1, 1), (1, 2), (2, 2), (5, 2), (8, 3)]
)
def test_our_rule_keeps_the_distribution(models, exact, beam_width, draft_len):
    texts = draw_texts(models, beam_width=beam_width, draft_len=draft_len)
    assert p_value(texts, exact) > 1e-3


@pytest.mark.parametrize(("beam_width", "draft_len"), [(1, 2), (2, 2), (5, 2)])
def test_the_published_rule_does_not(models, exact, monkeypatch, beam_width, draft_len):
    published = PublishedRule()
    monkeypatch.setattr(generation, "choose", published.choose)
    monkeypatch.setattr(generation, "accept", published.accept)
    monkeypatch.setattr(recurrent, "beam_search", published.beam_search)
    texts = draw_texts(models, beam_width=beam_width, draft_len=draft_len)
    assert p_value(texts, exact) < 1e-6


def test_the_same_seed_gives_the_same_texts(models):
    first, again, other = (
        draw_texts(models, seed, draws=256, beam_width=2, draft_len=2) for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other


class PublishedRule:
    """The released acceptance rule, fed through the engine's own loop."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)
        self.true_search = recurrent.beam_search
        self.true_choose = generation.choose

    def beam_search(self, drafter, embed, true_token, context, beam_width, draft_len):
        beams = self.true_search(drafter, embed, true_token, context, beam_width, draft_len)
        width = beams.shape[1]
        embedded = embed(beams)
        p, d = drafter.start(context.unsqueeze(1), embedded[:, :1, 0])
        state = torch.zeros_like(embedded[:, :, 0])
        log_q = []
        for k in range(draft_len):
            state = drafter.next_state(embedded[:, :, k], state, d)
            log_q.append(drafter.logits(p, state).softmax(-1))
        self.q = torch.stack(log_q, 2)  # [B, W, D, V]
        assert self.q.shape[1] == width
        return beams

    def choose(self, logits, temperature, generator):
        self.p = (logits / TEMPERATURE).softmax(-1)  # [T, V]
        return self.true_choose(logits, temperature, generator)

    def accept(self, tree, choice) -> Accepted:
        batch, width, length = tree.beams.shape
        if length == 1:
            return Accepted(tree.node_of[:, 0, 0], tree.node_of[:, 0], choice)
        trees = self.p[self.p.shape[0] - tree.tokens.numel() :].view(batch, -1, VOCAB)
        index = tree.node_of.flatten(1).unsqueeze(-1).expand(-1, -1, VOCAB)
        p = trees.gather(1, index).view(batch, width, length, VOCAB)
        drafted = tree.beams[..., 1:].unsqueeze(-1)
        ratio = (p[:, :, :-1].gather(-1, drafted) / self.q.gather(-1, drafted)).squeeze(-1)
        kept = torch.rand(ratio.shape, generator=self.generator) < ratio
        run = kept.long().cumprod(-1).sum(-1)
        accepted, best = run.max(-1)
        row = torch.arange(batch)
        path, beam = tree.node_of[row, best], tree.beams[row, best]
        p_here = p[row, best, accepted]
        q_here = torch.nn.functional.pad(self.q[row, best], (0, 0, 0, 1))[row, accepted]
        residual = (p_here - q_here).clamp(min=0)
        residual = torch.where(residual.sum(-1, keepdim=True) > 0, residual, p_here)
        extra = torch.multinomial(residual, 1, generator=self.generator).squeeze(1)
        tokens = torch.cat((beam[:, 1:], beam[:, :1]), dim=1)
        tokens[row, accepted] = extra
        return Accepted(accepted, path, tokens)
