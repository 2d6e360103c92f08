"""The engine with every kind of drafter writes what it writes without one."""

from __future__ import annotations

import random

import pytest
import torch

from profiles.records import RequestRecord, StepRecord, TrialConfig
from tests.tuner.engines.drafters.conftest import NEW_TOKENS, answers_for
from tests.tuner.engines.drafters.test_walk import METHODS
from tests.tuner.engines.tiny import VOCAB
from tuner.engines.base import Request
from tuner.engines.redrafter import decode, prefill
from tuner.engines.redrafter.draft_length import DraftLength
from tuner.engines.redrafter.drafters.walk import walk
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.engines.redrafter.kv_cache import KVCache
from tuner.errors import BadInput


@pytest.fixture(scope="module")
def engine():
    engine = RedrafterEngine()
    yield engine
    engine.close()


def serve(engine, tiny, requests, kind=None, device="cpu", **knobs):
    fixed = {"model": str(tiny.model_dir), "device": device, "quantization": "fp32"}
    drafter = tiny.names[kind] if kind else None
    engine.prepare(TrialConfig(drafter=drafter, **fixed, **knobs), 64)
    records = list(engine.serve(requests))
    texts = {r.id: r.output_token_ids for r in records if isinstance(r, RequestRecord)}
    return texts, [r for r in records if isinstance(r, StepRecord)]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", METHODS)
def test_requests_that_come_and_go_get_the_text_of_plain_decoding(engine, tiny, kind, device):
    draw = random.Random(2)
    requests = [
        Request(
            str(i),
            tuple(draw.randrange(VOCAB) for _ in range(draw.randint(1, 20))),
            draw.randint(1, 30),
            stop_token_ids=frozenset([3]),
        )
        for i in range(9)
    ]
    plain = {"beam_width": 1, "draft_len": 0, "batch_size": 4}
    expected, _ = serve(engine, tiny, requests, device=device, **plain)
    assert any(text[-1] == 3 for text in expected.values())
    for width, length, batch in ((1, 3, 4), (4, 4, 3), (2, 2, 1)):
        knobs = {"beam_width": width, "draft_len": length, "batch_size": batch}
        got, steps = serve(engine, tiny, requests, kind, device, **knobs)
        assert got == expected
        assert any(accepted for step in steps for accepted in step.accepted)


@pytest.mark.parametrize("kind", METHODS)
def test_static_shapes_with_prompts_in_chunks(tiny, monkeypatch, kind):
    """What CUDA captures: idle rows, padded chunks, prompts that take several steps."""
    monkeypatch.setattr(prefill, "PADDED_SIZES", (4, 8))
    monkeypatch.setattr(decode, "PADDED_SIZES", (4, 8))
    monkeypatch.setattr(decode, "PROMPT_TOKENS_PER_STEP", 12)
    method = tiny.load(kind)
    method.reserve(3, 64)
    cache = KVCache(tiny.base.config, 20, torch.device("cpu"), torch.float32)
    loop = decode.DecodeLoop(tiny.base, method, cache, 4, DraftLength(4), 3, 48, static=True)
    requests = [
        Request(f"{i} {again}", tuple(prompt), NEW_TOKENS)
        for again in range(2)
        for i, (prompt, _) in enumerate(tiny.pairs)
    ]
    served = loop.serve(requests)
    texts = {r.id: r.output_token_ids for r in served if isinstance(r, RequestRecord)}
    expected = [answer for _, answer in tiny.pairs] * 2
    assert [texts[request.id] for request in requests] == expected


@pytest.mark.parametrize("kind", METHODS)
def test_live_steps_are_those_of_the_walk(engine, tiny, kind):
    method = tiny.load(kind)
    expected = len(walk(method, answers_for(tiny, method), 4, 4).row)
    requests = [Request(str(i), tuple(p), NEW_TOKENS) for i, (p, _) in enumerate(tiny.pairs)]
    for batch in (1, 2):
        got, steps = serve(
            engine, tiny, requests, kind, beam_width=4, draft_len=4, batch_size=batch
        )
        assert [got[str(i)] for i in range(len(got))] == [answer for _, answer in tiny.pairs]
        assert sum(len(step.request_ids) for step in steps) == expected


def test_memory_counts_what_the_method_holds(engine, tiny):
    request = [Request("a", (1, 2), 4)]
    held = {}
    for kind in ("retrieval", "causal LM", "local attention"):
        serve(engine, tiny, request, kind, beam_width=2, draft_len=2, batch_size=2)
        held[kind] = engine.memory().drafter_bytes
    assert held["retrieval"] == 0 < min(held["causal LM"], held["local attention"])


def test_the_trained_draft_length_binds_only_what_was_trained(engine, tiny):
    request = [Request("a", (1, 2), 4)]
    serve(engine, tiny, request, "retrieval", beam_width=1, draft_len=12, batch_size=1)
    with pytest.raises(BadInput, match="at most 6"):
        serve(engine, tiny, request, "local attention", beam_width=1, draft_len=7, batch_size=1)
