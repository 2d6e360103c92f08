"""What every engine must do, however it computes: one suite, inherited by each engine's test."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from profiles.records import RequestRecord, StepRecord, TrialConfig
from tuner.engines.base import Engine, Request
from tuner.errors import BadInput, UnsupportedConfig

MAX_SEQ_LEN = 96


class EngineContract:
    """Subclasses give `engine`, `config(**knobs)` and `requests`."""

    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    def config(self, **knobs: object) -> TrialConfig:
        raise NotImplementedError

    def requests(self, count: int = 5, **overrides: object) -> list[Request]:
        made = []
        for i in range(count):
            fields = {
                "id": f"r{i}",
                "prompt_token_ids": tuple(1 + (i + j) % 20 for j in range(3 + 4 * i)),
                "max_new_tokens": 6 + 5 * i,
                "category": "even" if i % 2 == 0 else "odd",
            }
            made.append(Request(**{**fields, **overrides}))  # type: ignore[arg-type]
        return made

    def serve(
        self, engine: Engine, requests: Sequence[Request], **knobs: object
    ) -> tuple[list[StepRecord], dict[str, RequestRecord]]:
        engine.prepare(self.config(**knobs), MAX_SEQ_LEN)
        steps, answers = [], {}
        for record in engine.serve(requests):
            if isinstance(record, StepRecord):
                steps.append(record)
            else:
                assert record.id not in answers, "a request must end once"
                answers[record.id] = record
        return steps, answers

    def test_support_names_device_and_precisions(self, engine):
        support = engine.support()
        assert support.available, support.reason
        assert support.device
        assert support.precisions
        assert not set(support.precisions) & set(support.refused_precisions)

    def test_prepare_reports_progress_and_cost(self, engine):
        seen: list[float] = []
        prepared = engine.prepare(self.config(), MAX_SEQ_LEN, lambda f, text: seen.append(f))
        assert seen[-1] == 1.0
        assert seen == sorted(seen)
        assert prepared.cost_s >= 0
        assert prepared.device and prepared.precision and prepared.compute

    @pytest.mark.parametrize("batch_size", [1, 3, 8])
    def test_every_request_is_answered_once_and_adds_up(self, engine, batch_size):
        requests = self.requests()
        steps, answers = self.serve(engine, requests, batch_size=batch_size)
        assert answers.keys() == {r.id for r in requests}
        assert sum(s.context_requests for s in steps) == len(requests)
        for request in requests:
            answer = answers[request.id]
            assert answer.prompt_tokens == len(request.prompt_token_ids)
            assert answer.category == request.category
            assert answer.output_tokens == request.max_new_tokens
            assert answer.finish_reason == "length"
            assert sum(answer.emission_tokens) == answer.output_tokens
            assert answer.emission_s == sorted(answer.emission_s)
            assert answer.arrival_s <= answer.emission_s[0]
            generated = sum(
                committed
                for step in steps
                for rid, committed in zip(step.request_ids, step.committed, strict=True)
                if rid == request.id
            )
            assert generated == answer.output_tokens - 1  # the prompt's step gave the first

    def test_steps_stay_within_what_was_asked(self, engine):
        width, length = 4, 3
        steps, _ = self.serve(
            engine, self.requests(), beam_width=width, draft_len=length, batch_size=2
        )
        for step in steps:
            assert len(step.request_ids) + step.context_requests <= 2
            assert len(step.tree_nodes) == len(step.accepted) == len(step.committed)
            assert step.total_ms > 0
            for nodes, accepted, committed in zip(
                step.tree_nodes, step.accepted, step.committed, strict=True
            ):
                assert 1 <= nodes <= 1 + width * length
                assert 0 <= accepted <= length
                assert 1 <= committed <= accepted + 1

    def test_greedy_tokens_do_not_depend_on_the_config(self, engine):
        requests = self.requests()
        _, plain = self.serve(engine, requests, beam_width=1, draft_len=0)
        for knobs in ({"beam_width": 4, "draft_len": 4}, {"draft_len": 2, "batch_size": 8}):
            _, answers = self.serve(engine, requests, **knobs)
            for rid, answer in answers.items():
                assert answer.output_token_ids == plain[rid].output_token_ids

    def test_without_speculation_a_step_commits_one_token(self, engine):
        steps, _ = self.serve(engine, self.requests(), beam_width=1, draft_len=0)
        assert {c for step in steps for c in step.committed} == {1}
        assert {n for step in steps for n in step.tree_nodes} == {1}

    def test_stop_token_ends_the_output_and_is_part_of_it(self, engine):
        [request] = self.requests(1, max_new_tokens=40)
        _, free = self.serve(engine, [request], draft_len=0)
        tokens = free["r0"].output_token_ids
        for stop in {tokens[0], tokens[7]}:
            expected = tokens[: tokens.index(stop) + 1]
            stopping = self.requests(1, max_new_tokens=40, stop_token_ids=frozenset({stop}))
            for draft_len in (0, 4):
                _, cut = self.serve(engine, stopping, draft_len=draft_len)
                assert cut["r0"].output_token_ids == expected
                assert cut["r0"].finish_reason == "stop"

    def test_a_single_token_needs_no_generation_step(self, engine):
        steps, answers = self.serve(engine, self.requests(2, max_new_tokens=1), batch_size=2)
        assert [len(s.request_ids) for s in steps] == [0]
        assert {a.output_tokens for a in answers.values()} == {1}

    def test_nothing_to_serve_gives_nothing(self, engine):
        assert self.serve(engine, []) == ([], {})

    def test_a_prompt_may_reach_exactly_the_limit(self, engine):
        request = self.requests(1, prompt_token_ids=(3,) * (MAX_SEQ_LEN - 5), max_new_tokens=5)
        _, answers = self.serve(engine, request, beam_width=4, draft_len=4)
        assert answers["r0"].output_tokens == 5

    def test_a_prompt_past_the_limit_is_refused_by_name(self, engine):
        request = self.requests(1, prompt_token_ids=(3,) * (MAX_SEQ_LEN - 4), max_new_tokens=5)
        with pytest.raises(BadInput, match="max_new_tokens = 5"):
            self.serve(engine, request)

    def test_an_empty_prompt_is_refused_by_name(self, engine):
        with pytest.raises(BadInput, match="prompt = 'r0': is empty"):
            self.serve(engine, self.requests(1, prompt_token_ids=()))

    def test_an_unsupported_precision_is_refused_by_name(self, engine):
        refused = engine.support(self.config().device).refused_precisions
        if not refused:
            pytest.skip("this host runs every precision")
        precision, reason = next(iter(refused.items()))
        with pytest.raises(UnsupportedConfig, match=f"quantization = '{precision}'") as caught:
            engine.prepare(self.config(quantization=precision), MAX_SEQ_LEN)
        assert reason in str(caught.value)

    def test_it_serves_on_after_a_refusal_and_after_an_abandoned_serve(self, engine):
        with pytest.raises(BadInput):
            self.serve(engine, self.requests(1, prompt_token_ids=()))
        engine.prepare(self.config(batch_size=2), MAX_SEQ_LEN)
        abandoned = engine.serve(self.requests())
        next(iter(abandoned))
        abandoned.close()
        _, answers = self.serve(engine, self.requests())
        assert len(answers) == 5

    def test_memory_is_split_and_closing_twice_is_fine(self, engine):
        self.serve(engine, self.requests(1))
        memory = engine.memory()
        assert memory.weights_bytes > 0
        assert memory.drafter_bytes > 0
        assert memory.kv_bytes > 0
        engine.close()
        engine.close()
