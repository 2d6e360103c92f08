from __future__ import annotations

import pytest

from profiles.metrics import summarize
from profiles.records import (
    PairedRound,
    RequestRecord,
    StepRecord,
    TrialConfig,
    TrialResult,
    TrialState,
    WorkloadSpec,
)
from profiles.statistics import paired_speedup
from tuner.sweep.spec import SweepSpec
from tuner.verdict import judge_results


def result(
    number: int, trial_s: list[float], batch: int = 1, width: int = 2, **more
) -> TrialResult:
    """A trial of rounds of 100 tokens; the baseline takes one second each."""
    rounds = [
        PairedRound(
            round=i,
            order="baseline_first",
            baseline_s=1.0,
            baseline_tokens=100,
            trial_s=s,
            trial_tokens=100,
        )
        for i, s in enumerate(trial_s)
    ]
    total = sum(trial_s)
    step = StepRecord(0, 0.0, 0.1, 1.0, 0.1, 0.1, 0, 0, ["a"], [1], [0], [99])
    step.committed, step.accepted, step.tree_nodes = [1], [0], [1]
    request = RequestRecord("a", "c", 3, [1, 2], "length", 0.0, [total / 2, total], [1, 1])
    metrics = summarize([step], [request], width, 2)
    metrics = metrics.model_copy(update={"output_tokens_per_s": 100 * len(trial_s) / total})
    fields = {
        "number": number,
        "state": TrialState.COMPLETE,
        "config": TrialConfig(beam_width=width, draft_len=2, batch_size=batch),
        "config_hash": str(number),
        "workload": WorkloadSpec(),
        "started_at": "now",
        "metrics": metrics,
        "rounds": rounds,
        "speedup": paired_speedup(rounds),
    }
    return TrialResult(**{**fields, **more})


def test_a_profiled_trial_is_no_candidate():
    fast, profiled = result(0, [0.9] * 4), result(1, [0.5] * 4, profiler="nsys")
    verdict = judge_results([fast, profiled], SweepSpec())
    assert (verdict.finished, verdict.feasible, verdict.best) == (2, 1, 0)
    assert judge_results([profiled], SweepSpec()).best is None


def test_a_clear_winner():
    verdict = judge_results([result(0, [0.9] * 4), result(1, [0.5, 0.52, 0.5, 0.49])], SweepSpec())
    assert verdict.best == 1
    assert verdict.probability_best == 1.0
    assert verdict.tied_with == []
    assert verdict.speedup == pytest.approx(4 / 2.01)
    assert "best with probability 100%" in verdict.verdict


def test_a_tie_within_noise_is_called_one():
    rough = [0.4, 0.6, 0.5, 0.55]
    verdict = judge_results([result(0, rough), result(1, rough[::-1])], SweepSpec())
    assert verdict.probability_best < 0.95
    assert len(verdict.tied_with) == 1
    assert "tie within noise" in verdict.verdict


def test_nothing_finished_and_nothing_feasible():
    assert "nothing has finished" in judge_results([], SweepSpec()).verdict
    broken = result(0, [0.5] * 2, state=TrialState.INFEASIBLE, violations=["x"])
    verdict = judge_results([broken], SweepSpec())
    assert (verdict.best, verdict.feasible, verdict.finished) == (None, 0, 1)
    assert "no finished config meets the limits" in verdict.verdict


def test_no_speculation_can_win():
    baseline = result(0, [1.0] * 4)
    baseline = baseline.model_copy(
        update={
            "config": baseline.config.baseline(),
            "rounds": [],
            "speedup": None,
        }
    )
    verdict = judge_results([baseline, result(1, [1.2] * 4)], SweepSpec())
    assert verdict.best == 0
    assert verdict.probability_best == 1.0
    assert "No speculation is best" in verdict.verdict


def test_a_trial_that_ran_while_the_host_was_fast_does_not_win_by_that():
    """Its raw throughput is the highest, but it is slower than its own paired baseline."""
    baseline = result(0, [1.0] * 4)
    baseline = baseline.model_copy(
        update={"config": baseline.config.baseline(), "rounds": [], "speedup": None}
    )
    lucky = result(1, [1.1] * 4)
    metrics = lucky.metrics.model_copy(update={"output_tokens_per_s": 150.0})
    verdict = judge_results([baseline, lucky.model_copy(update={"metrics": metrics})], SweepSpec())
    assert verdict.best == 0
    assert verdict.value == pytest.approx(100.0)


def test_every_batch_size_has_its_own_best():
    one, four = result(3, [0.5] * 4), result(4, [0.4] * 4, batch=4)
    verdict = judge_results([one, four, result(5, [0.9] * 4, batch=4)], SweepSpec())
    assert [(b.batch_size, b.best) for b in verdict.by_batch] == [(1, 3), (4, 4)]
    assert verdict.by_batch[0].speedup == pytest.approx(2.0)
    assert "batch 1: trial 3" in verdict.by_batch[0].words


def test_a_latency_objective_picks_the_smallest_and_claims_no_probability():
    slow, fast = result(0, [0.9] * 4), result(1, [0.5] * 4)
    verdict = judge_results([slow, fast], SweepSpec(objective="ttft_ms_p95"))
    assert verdict.best == 1
    assert verdict.probability_best is None
