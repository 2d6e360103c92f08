"""Steps that are launched before the last one is read back, on the static shapes of CUDA."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
import torch

from profiles.records import RequestRecord, StepRecord, TrialConfig
from tests.tuner.engines.test_greedy_equality import generate, prompts
from tests.tuner.engines.tiny import save_tiny_drafter
from tuner.engines.base import Request
from tuner.engines.redrafter.checkpoint import load_drafter, load_llama
from tuner.engines.redrafter.decode import DecodeLoop
from tuner.engines.redrafter.draft_length import DraftLength
from tuner.engines.redrafter.drafters.recurrent import RecurrentDraft
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.engines.redrafter.kv_cache import KVCache, blocks_for

NEW = 24


class Watched(DecodeLoop):
    """Counts the steps launched ahead, and gives every step's result in one place."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments, static=True)
        self.unfinished = self.ahead = 0
        self.result = torch.zeros(self.rows.places, 3 + self.draft_length.longest).long()
        run = self.generation_steps.run

        def overwritten(shape, begin):
            given = run(shape, begin)
            rows, width = given.shape
            self.result[:rows, :width] = given  # as a captured graph does
            return self.result[:rows, :width]

        self.generation_steps.run = overwritten

    def _launch(self):
        launched = super()._launch()
        self.unfinished += launched is not None
        self.ahead += self.unfinished > 1
        return launched

    def _finish(self, launched):
        self.unfinished -= 1
        return super()._finish(launched)


def make_loop(tiny_llama, tmp_path, beam_width, draft_length, places, longest):
    draft_len = draft_length.longest
    model = load_llama(tiny_llama)
    drafter = load_drafter(
        save_tiny_drafter(tmp_path / "drafter", draft_vocab_size=16, scale=2.0), model.config
    )
    reach = longest + 1 + (beam_width + 1) * draft_len
    model.prepare_positions(reach, torch.device("cpu"), torch.float32)
    blocks = 1 + places * blocks_for(reach)
    cache = KVCache(model.config, blocks, torch.device("cpu"), torch.float32)
    method = RecurrentDraft(drafter, model.embed_tokens)
    return Watched(model, method, cache, beam_width, draft_length, places, longest)


@pytest.mark.parametrize("places", [1, 3])
@pytest.mark.parametrize(
    ("beam_width", "draft_length"),
    [
        (1, DraftLength(0)),
        (1, DraftLength(3)),
        (4, DraftLength(4)),
        (2, DraftLength(4, shortest=0, up_to=2)),
    ],
)
def test_texts_end_where_they_must(tiny_llama, tmp_path, beam_width, draft_length, places):
    plain = [Request(str(i), p, NEW - i % 5) for i, p in enumerate(prompts(8))]
    whole = generate(tiny_llama, plain)
    stops = {r.id: whole[r.id][7] for r in plain[::2]}  # every second one ends early
    requests = [
        Request(
            r.id,
            r.prompt_token_ids,
            r.max_new_tokens,
            stop_token_ids=frozenset({stops[r.id]} if r.id in stops else ()),
        )
        for r in plain
    ]
    longest = max(len(r.prompt_token_ids) + r.max_new_tokens for r in requests)
    loop = make_loop(tiny_llama, tmp_path, beam_width, draft_length, places, longest)
    records = list(loop.serve(requests))
    texts = {r.id: r.output_token_ids for r in records if isinstance(r, RequestRecord)}
    for request in requests:
        text = whole[request.id]
        stop = stops.get(request.id)
        assert texts[request.id] == (text if stop is None else text[: text.index(stop) + 1])
    assert loop.ahead > 2 * len(requests)
    steps = [r for r in records if isinstance(r, StepRecord)]
    committed = sum(c for step in steps for c in step.committed)
    assert committed + len(requests) == sum(map(len, texts.values()))
    for step in steps:
        assert len(step.request_ids) == len(step.committed) == len(step.tree_nodes)
    assert all(a.start_s < b.start_s for a, b in pairwise(steps))


def test_a_step_may_have_to_wait_until_the_last_record_was_taken(tiny_llama, tmp_path):
    loop = make_loop(tiny_llama, tmp_path, 2, DraftLength(2), 2, 64)
    taken_s = 0.0
    requests = [Request(str(i), p, NEW) for i, p in enumerate(prompts(3))]
    for record in loop.serve(requests, ahead=False):
        if isinstance(record, StepRecord):
            assert record.start_s > taken_s
        taken_s = time.perf_counter()
    assert loop.ahead == 0


def test_a_loop_that_was_left_serves_again(tiny_llama, tmp_path):
    requests = [Request(str(i), p, NEW) for i, p in enumerate(prompts(3))]
    loop = make_loop(tiny_llama, tmp_path, 2, DraftLength(2), 2, 64)
    serving = loop.serve(requests)
    for _ in range(4):
        next(serving)
    serving.close()
    served = loop.serve(requests)
    texts = {r.id: r.output_token_ids for r in served if isinstance(r, RequestRecord)}
    assert texts == generate(tiny_llama, requests)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
def test_nothing_in_a_step_waits_for_the_device(monkeypatch):
    engine = RedrafterEngine()
    engine.prepare(TrialConfig(device="cuda", beam_width=4, draft_len=4, batch_size=2), 200)
    loop, launched = engine._loop, []
    launch = loop._launch

    def strict():
        reads = bool(loop.joining)
        torch.cuda.set_sync_debug_mode("default" if reads else "error")
        try:
            launched.append(reads)
            return launch()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(loop, "_launch", strict)
    list(engine.serve([Request(str(i), tuple(range(300, 340)), 40) for i in range(3)]))
    assert launched.count(False) > 10
    engine.close()
