from __future__ import annotations

import pytest

from profiles.records import TrialConfig
from tuner.engines.base import Request
from tuner.engines.fake import FakeEngine, Timings
from tuner.measure import compare_text, cut_rounds, measure, metrics_of

CONFIG = TrialConfig(engine="fake", model="fake", beam_width=2, draft_len=3, batch_size=2)


def requests(count: int = 16, new: int = 20) -> list[Request]:
    return [Request(f"r{i}", tuple(range(3 + i)), new, category=f"c{i % 2}") for i in range(count)]


def test_rounds_cover_every_request_once_and_fill_the_batch():
    for count, batch, sizes in (
        (16, 1, [2] * 8),
        (16, 4, [4] * 4),
        (3, 8, [3]),
        (17, 4, [4, 4, 4, 5]),
        (9, 1, [2, 2, 2, 2, 1]),
    ):
        rounds = cut_rounds(requests(count), batch)
        assert [len(chunk) for chunk in rounds] == sizes
        assert [r.id for chunk in rounds for r in chunk] == [f"r{i}" for i in range(count)]


def test_sides_alternate_and_serve_the_same_prompts():
    result = measure(FakeEngine(), CONFIG, requests())
    assert [r.order for r in result.rounds[:3]] == [
        "baseline_first",
        "trial_first",
        "baseline_first",
    ]
    for trial, baseline in zip(result.trial, result.baseline, strict=True):
        assert {r.id for r in trial.requests} == {r.id for r in baseline.requests}
    assert all(r.trial_tokens == r.baseline_tokens for r in result.rounds)


def test_warm_up_is_not_counted():
    result = measure(FakeEngine(), CONFIG, requests())
    served = [r.id for side in result.trial for r in side.requests]
    assert sorted(served) == sorted(r.id for r in requests())
    assert sum(side.tokens for side in result.trial) == 16 * 20


def test_a_baseline_has_no_pairs():
    result = measure(FakeEngine(), CONFIG.baseline(), requests())
    assert result.rounds == []
    assert result.baseline == []
    assert metrics_of(result.trial, CONFIG.baseline()).acceptance_length == 1.0


def test_metrics_leave_out_the_time_of_the_other_side():
    result = measure(FakeEngine(), CONFIG, requests())
    metrics = metrics_of(result.trial, CONFIG)
    assert metrics.duration_s == pytest.approx(sum(r.trial_s for r in result.rounds))
    assert metrics.output_tokens_per_s == pytest.approx(16 * 20 / metrics.duration_s)
    assert metrics.acceptance_length_by_category.keys() == {"c0", "c1"}


def test_speculation_that_never_hits_costs_time_and_changes_nothing():
    engine = FakeEngine(Timings(acceptance=(0.0,)))
    result = measure(engine, CONFIG, requests(4))
    assert metrics_of(result.trial, CONFIG).acceptance_length == 1.0
    assert all(r.trial_s > r.baseline_s for r in result.rounds)
    assert compare_text(result.trial, result.baseline).all_equal


def test_the_first_difference_of_a_text_is_named():
    result = measure(FakeEngine(), CONFIG, requests(4))
    first = result.trial[0].requests[0]
    first.output_token_ids[5] += 1
    check = compare_text(result.trial, result.baseline)
    assert (check.requests, check.equal) == (4, 3)
    assert check.first_difference == f"request {first.id}, output token 5"
