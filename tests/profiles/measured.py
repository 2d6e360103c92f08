"""Small records with values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from profiles.records import (
    Hardware,
    PairedRound,
    RequestRecord,
    RunRecord,
    StepRecord,
    TrialConfig,
    TrialResult,
    TrialState,
    WorkloadSpec,
)

BEAM_WIDTH = 2
DRAFT_LEN = 3


def steps() -> list[StepRecord]:
    """Two requests read in step 0, served together in 1 and 2; `b` alone in 3.

    a: accepted 3, 1 -> committed 4, 1 (its second step was cut from 2 by the length limit)
    b: accepted 0, 2, 1 -> committed 1, 3, 2
    """
    return [
        StepRecord(0, 10.0, 0.0, 8.0, 0.0, 2.0, context_requests=2, context_tokens=9),
        StepRecord(
            1, 10.1, 2.0, 6.0, 1.0, 1.0,
            request_ids=["a", "b"], tree_nodes=[7, 4], accepted=[3, 0], committed=[4, 1],
        ),
        StepRecord(
            2, 10.2, 2.0, 6.0, 1.0, 1.0,
            request_ids=["a", "b"], tree_nodes=[5, 7], accepted=[1, 2], committed=[1, 3],
        ),
        StepRecord(
            3, 10.3, 1.0, 7.0, 1.0, 1.0,
            request_ids=["b"], tree_nodes=[6], accepted=[1], committed=[2],
        ),
    ]  # fmt: skip


def requests() -> list[RequestRecord]:
    """`a`: 1 token by prefill, then 4 and 1. `b`: 1, then 1, 3 and 2."""
    return [
        RequestRecord(
            "a", "chat", 4, [1, 2, 3, 4, 5, 6], "length", 10.0, [10.1, 10.2, 10.3], [1, 4, 1]
        ),
        RequestRecord(
            "b", "code", 5, [1, 2, 3, 4, 5, 6, 7], "stop", 10.0, [10.1, 10.2, 10.3, 10.4],
            [1, 1, 3, 2],
        ),
    ]  # fmt: skip


def change(record: StepRecord | RequestRecord, **values: object) -> object:
    """A copy with other values."""
    return replace(record, **values)


def paired_round(number: int, trial_tokens: int, trial_s: float = 1.0) -> PairedRound:
    """A round whose baseline made 100 tokens in 1 s."""
    return PairedRound(
        round=number,
        order="baseline_first",
        baseline_s=1.0,
        baseline_tokens=100,
        trial_s=trial_s,
        trial_tokens=trial_tokens,
    )


def run_record(run_id: str = "run-1", created_at: str = "2026-01-01T00:00:00+00:00", **spec):
    return RunRecord(
        run_id=run_id,
        kind="run",
        created_at=created_at,
        spec=spec,
        versions={"torch": "2.13.0"},
        git_sha=None,
        hardware=Hardware(cpu="test", cores=1, memory_total_bytes=1),
        seed=0,
        workload_hash="0",
    )


def trial_result(number: int) -> TrialResult:
    return TrialResult(
        number=number,
        state=TrialState.COMPLETE,
        config=TrialConfig(),
        config_hash="0",
        workload=WorkloadSpec(),
        started_at="2026-01-01T00:00:00+00:00",
    )
