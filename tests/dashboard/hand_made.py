"""Small runs on disk, with values that are easy to follow through the pages."""

from __future__ import annotations

from profiles.records import (
    EnergyUse,
    Hardware,
    MemorySplit,
    PairedRound,
    Percentiles,
    RunRecord,
    ServeMetrics,
    Speedup,
    TextCheck,
    TimeShare,
    TrialConfig,
    TrialResult,
    TrialState,
    WorkloadSpec,
)
from profiles.status import RunState, RunStatus, now_utc
from profiles.store import RunFolder, RunStore
from tuner.sweep.spec import SweepSpec

MIB = 1024 * 1024
BEGUN = "2026-01-01T00:00:00.000000+00:00"
ENDED = "2026-01-01T00:00:10.000000+00:00"
BASELINE_TOKENS_PER_S = {1: 40.0, 4: 100.0}
NO_METERS = "this host has no energy meter"


def percentiles(p95: float) -> Percentiles:
    return Percentiles(p50=p95 / 2, p95=p95, p99=p95 * 1.1, mean=p95 / 2)


def metrics(tokens_per_s: float, length: float, draft_len: int) -> ServeMetrics:
    return ServeMetrics(
        requests=2,
        output_tokens=100,
        duration_s=100 / tokens_per_s,
        output_tokens_per_s=tokens_per_s,
        output_tokens_per_s_per_user=tokens_per_s / 2,
        steps=50,
        committed_tokens=round(50 * length),
        acceptance_length=length,
        acceptance_length_by_category={"chat": length + 0.5, "code": length - 0.5},
        path_acceptance_rate=(length - 1) / draft_len if draft_len else None,
        tree_acceptance_rate=0.25 if draft_len else None,
        position_acceptance=[0.75, 0.5, None][:draft_len],
        tree_nodes_mean=5.0,
        beam_diversity=0.8 if draft_len else None,
        ttft_ms=percentiles(200.0),
        tpot_ms=percentiles(1000 / tokens_per_s),
        itl_ms=percentiles(30.0),
        e2e_ms=percentiles(900.0),
        time_share=TimeShare(draft=0.25, verify=0.6, accept=0.05, host=0.1),
        step_ms_mean=20.0,
    )


def trial(
    number: int,
    beam_width: int = 4,
    draft_len: int = 3,
    batch_size: int = 1,
    ratio: float = 1.5,
    length: float = 2.0,
    **changes: object,
) -> TrialResult:
    """A trial `ratio` times as fast as 40 tok/s at batch 1, or as 100 tok/s at batch 4."""
    baseline = BASELINE_TOKENS_PER_S[batch_size]
    fields = {
        "number": number,
        "state": TrialState.COMPLETE,
        "config": TrialConfig(
            engine="redrafter", beam_width=beam_width, draft_len=draft_len, batch_size=batch_size
        ),
        "config_hash": f"{number:016d}",
        "workload": WorkloadSpec(requests=2),
        "device": "2 x test CPU",
        "precision": "fp32",
        "compute": "torch",
        "metrics": metrics(ratio * baseline, length, draft_len),
        "memory": MemorySplit(
            weights_bytes=200 * MIB,
            drafter_bytes=20 * MIB,
            kv_bytes=10 * MIB,
            rest_bytes=None,
            peak_bytes=None,
            reason="the allocator keeps no count",
        ),
        "energy": EnergyUse(energy_mj=None, energy_mj_per_token=None, reason=NO_METERS),
        "started_at": BEGUN,
        "finished_at": ENDED,
    }
    if draft_len:
        rounds = [paired_round(n, ratio, baseline) for n in range(2)]
        fields |= {
            "baseline": metrics(baseline, 1.0, 0),
            "speedup": Speedup(speedup=ratio, ci95=(ratio - 0.1, ratio + 0.1), rounds=2),
            "rounds": rounds,
            "text": TextCheck(requests=2, equal=2),
        }
    return TrialResult(**(fields | changes))


def paired_round(number: int, ratio: float, baseline: float) -> PairedRound:
    return PairedRound(
        round=number,
        order="baseline_first",
        baseline_s=100 / baseline,
        baseline_tokens=100,
        trial_s=100 / (baseline * ratio),
        trial_tokens=100,
    )


def baseline(number: int, batch_size: int = 1) -> TrialResult:
    return trial(number, beam_width=1, draft_len=0, batch_size=batch_size, ratio=1.0, length=1.0)


def failed(number: int, error: str = "no room for it") -> TrialResult:
    return trial(
        number,
        state=TrialState.FAILED,
        error=error,
        metrics=None,
        baseline=None,
        speedup=None,
        rounds=[],
        text=None,
        memory=None,
        energy=None,
    )


def infeasible(number: int) -> TrialResult:
    return trial(number, state=TrialState.INFEASIBLE, violations=["tpot_ms_p95 breaks its limit 5"])


def run_record(run_id: str, spec: dict[str, object], kind: str = "sweep") -> RunRecord:
    return RunRecord(
        run_id=run_id,
        kind=kind,
        created_at=BEGUN,
        spec=spec,
        versions={"torch": "2.13.0"},
        git_sha="0123456789abcdef0123-dirty",
        hardware=Hardware(cpu="test CPU", cores=2, memory_total_bytes=MIB),
        seed=0,
        workload_hash="0" * 64,
    )


def make_run(
    store: RunStore,
    *trials: TrialResult,
    run_id: str = "sweep-1",
    state: RunState | None = "done",
    message: str = "",
) -> RunFolder:
    """A sweep on disk. One that is running belongs to this process; None has no status."""
    run = store.create(run_record(run_id, SweepSpec().model_dump(mode="json")))
    for result in trials:
        run.trial(result.number).write_config(result.config)
        run.trial(result.number).write_result(result)
    if state == "running":
        run.write_status(RunStatus.of_this_process(state, message, len(trials), 5))
    elif state is not None:
        run.write_status(
            RunStatus(
                state=state,
                message=message,
                trials_done=len(trials),
                trials_planned=5,
                updated_at=now_utc() if state != "done" else ENDED,
            )
        )
    return run
