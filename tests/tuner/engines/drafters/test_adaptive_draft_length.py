"""Drafts whose length moves: which length is chosen, and that the text never notices."""

from __future__ import annotations

import random

import pytest
import torch

from profiles.metrics import summarize
from profiles.records import RequestRecord, StepRecord, TrialConfig
from tests.tuner.engines.drafters.conftest import NEW_TOKENS
from tests.tuner.engines.drafters.test_live import serve
from tests.tuner.engines.drafters.test_walk import METHODS
from tests.tuner.engines.tiny import VOCAB
from tuner.engines.base import Request
from tuner.engines.redrafter import decode, prefill
from tuner.engines.redrafter.draft_length import REMEMBERED_STEPS, DraftLength
from tuner.engines.redrafter.drafters.base import DraftMethod
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.engines.redrafter.kv_cache import KVCache


@pytest.fixture(scope="module")
def engine():
    engine = RedrafterEngine()
    yield engine
    engine.close()


class Wrong(DraftMethod):
    """Drafts a token that the base model never writes."""

    graph_safe = True
    remembers = False

    def reserve(self, places, positions):
        pass

    def join(self, place, tokens, context):
        pass

    def propose(self, places, true_token, context, beam_width, draft_len):
        root = true_token.view(-1, 1, 1).expand(-1, beam_width, 1)
        return torch.cat((root, root.new_full((len(root), beam_width, draft_len), self.token)), -1)

    def observe(self, places, tokens, context):
        pass

    def leave(self, place):
        pass


def come_and_go(count=9):
    draw = random.Random(2)
    return [
        Request(
            str(i),
            tuple(draw.randrange(VOCAB) for _ in range(draw.randint(1, 20))),
            draw.randint(1, 30),
            stop_token_ids=frozenset([3]),
        )
        for i in range(count)
    ]


def loop_of(tiny, method, length, batch, static, width=2):
    method.reserve(batch, 80)
    cache = KVCache(tiny.base.config, 1 + 5 * batch, torch.device("cpu"), torch.float32)
    return decode.DecodeLoop(tiny.base, method, cache, width, length, batch, 48, static=static)


def served(loop, requests):
    records = list(loop.serve(requests))
    texts = {r.id: r.output_token_ids for r in records if isinstance(r, RequestRecord)}
    return texts, [r for r in records if isinstance(r, StepRecord)]


def test_one_more_than_the_running_requests_accepted_on_average():
    length = DraftLength(5, 1)
    unseen = length.unseen()
    assert length.choose([unseen]) == 5
    none, some = length.unseen(), length.unseen()
    for _ in range(REMEMBERED_STEPS):
        none.append(0)
        some.append(2)
    assert length.choose([none]) == 1
    assert length.choose([some]) == 3
    assert length.choose([none, some]) == 2
    assert length.choose([none, none, unseen]) == 3  # 1 + 5/3, rounded up
    none.append(1)
    assert length.choose([none]) == 2  # a single hit in 8 steps tries one more
    assert DraftLength(5, 4).choose([none]) == 4
    assert DraftLength(5).choose([none]) == 5
    assert DraftLength(0).choose([DraftLength(0).unseen()]) == 0


def test_above_the_threshold_nothing_is_drafted():
    length = DraftLength(3, 2, up_to=2)
    assert [list(length.possible(n)) for n in (1, 2, 3)] == [[2, 3], [2, 3], [0]]
    assert [length.choose([length.unseen()] * n) for n in (1, 2, 3)] == [3, 3, 0]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", METHODS)
def test_requests_that_come_and_go_get_the_text_of_plain_decoding(engine, tiny, kind, device):
    requests = come_and_go()
    plain = {"beam_width": 1, "draft_len": 0, "batch_size": 4}
    expected, _ = serve(engine, tiny, requests, device=device, **plain)
    for batch, up_to in ((1, None), (4, None), (4, 2)):
        bounds = {"draft_len": 4, "draft_len_min": 1, "speculate_up_to": up_to}
        knobs = {"beam_width": 3, "batch_size": batch, **bounds}
        got, steps = serve(engine, tiny, requests, kind, device, **knobs)
        assert got == expected
        drafted = {step.draft_len for step in steps if step.request_ids}
        assert drafted <= {0, 1, 2, 3, 4} and max(drafted) == 4
        if up_to is not None:
            alone = {len(s.request_ids) <= up_to for s in steps if s.draft_len}
            assert alone == {True}
            crowded = [s for s in steps if len(s.request_ids) > up_to]
            assert crowded and all(s.tree_nodes == [1] * len(s.tree_nodes) for s in crowded)
            assert any(a for s in steps for a in s.accepted), "drafting must go on afterwards"
        else:
            assert 0 not in drafted


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("up_to", [None, 2])
def test_static_shapes_of_every_length(tiny, monkeypatch, kind, up_to):
    """What CUDA captures: every step's shape was prepared before the first of them."""
    monkeypatch.setattr(prefill, "PADDED_SIZES", (4, 8))
    monkeypatch.setattr(decode, "PADDED_SIZES", (4, 8))
    monkeypatch.setattr(decode, "PROMPT_TOKENS_PER_STEP", 12)
    loop = loop_of(tiny, tiny.load(kind), DraftLength(4, 1, up_to), 3, static=True)
    prepared, seen = set(), set()
    monkeypatch.setattr(loop.generation_steps, "capture", prepared.add)
    loop.capture(sampled=False)
    run = loop.generation_steps.run
    monkeypatch.setattr(
        loop.generation_steps, "run", lambda shape, begin: seen.add(shape) or run(shape, begin)
    )
    requests = [
        Request(f"{i} {again}", tuple(prompt), NEW_TOKENS)
        for again in range(2)
        for i, (prompt, _) in enumerate(tiny.pairs)
    ]
    texts, _ = served(loop, requests)
    expected = [answer for _, answer in tiny.pairs] * 2
    assert [texts[request.id] for request in requests] == expected
    assert seen <= prepared
    lengths = {shape.draft_len for shape in seen}
    assert 4 in lengths and (len(lengths) > 1 or kind == "the base model itself")
    assert len(prepared) == (3 * 4 if up_to is None else 2 * 4 + 1)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_wrong_drafter_ends_at_the_shortest_draft(tiny, static, batch):
    method = Wrong()
    answers = {token for _, answer in tiny.pairs for token in answer}
    method.token = min(set(range(VOCAB)) - answers)
    requests = [Request(str(i), tuple(p), NEW_TOKENS) for i, (p, _) in enumerate(tiny.pairs)]
    texts, steps = served(loop_of(tiny, method, DraftLength(5, 1), batch, static), requests)
    assert [texts[str(i)] for i in range(3)] == [answer for _, answer in tiny.pairs]
    lengths = [step.draft_len for step in steps if "0" in step.request_ids]
    assert lengths[0] == 5 and lengths == sorted(lengths, reverse=True)
    # NOTE: a step may be launched before the last one is read back.
    assert set(lengths[REMEMBERED_STEPS + 1 :]) == {1}


@pytest.mark.parametrize("static", [False, True])
def test_a_perfect_drafter_stays_at_the_longest_draft(tiny, static):
    method = tiny.load("the base model itself")
    requests = [Request(str(i), tuple(p), NEW_TOKENS) for i, (p, _) in enumerate(tiny.pairs)]
    _, steps = served(loop_of(tiny, method, DraftLength(4, 1), 3, static, width=1), requests)
    assert {step.draft_len for step in steps if step.request_ids} == {4}
    assert {a for step in steps for a in step.accepted} == {4}


def test_rates_are_of_what_was_drafted(engine, tiny):
    requests = come_and_go()
    bounds = {"draft_len": 4, "draft_len_min": 1, "speculate_up_to": 2}
    config = TrialConfig(beam_width=2, batch_size=4, **bounds)
    fixed = {"model": str(tiny.model_dir), "device": "cpu", "quantization": "fp32"}
    engine.prepare(config.model_copy(update={**fixed, "drafter": tiny.names["recurrent"]}), 64)
    records = list(engine.serve(requests))
    steps = [r for r in records if isinstance(r, StepRecord)]
    answers = [r for r in records if isinstance(r, RequestRecord)]
    metrics = summarize(steps, answers, 2, 4)
    drafted = sum(s.draft_len * len(s.request_ids) for s in steps)
    served = sum(len(s.request_ids) for s in steps)
    assert 0 < drafted < 4 * served
    assert metrics.draft_len_mean == pytest.approx(drafted / served)
    committed = sum(sum(s.committed) for s in steps)
    assert metrics.path_acceptance_rate == pytest.approx((committed - served) / drafted)
    nodes = sum(n - 1 for s in steps for n in s.tree_nodes)
    assert metrics.beam_diversity == pytest.approx(nodes / (2 * drafted))


def test_auto_is_what_the_drafter_was_trained_for(tiny):
    longest = {
        kind: RedrafterEngine.longest_draft(TrialConfig(drafter=tiny.names[kind]))
        for kind in METHODS
    }
    trained = {"recurrent": 6, "local attention": 6}
    assert longest == dict.fromkeys(METHODS) | trained
