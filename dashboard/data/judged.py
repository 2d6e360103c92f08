"""The verdict of a run; a single `tuner run` is judged as a sweep without limits."""

from __future__ import annotations

from collections.abc import Sequence

from profiles.records import RunRecord, TrialResult
from tuner.sweep.spec import SweepSpec
from tuner.verdict import Verdict, judge_results

OBJECTIVES = {
    "output_tokens_per_s": "output tokens/s, higher is better",
    "tpot_ms_p95": "TPOT p95 (ms), lower is better",
    "ttft_ms_p95": "TTFT p95 (ms), lower is better",
    "memory_peak_bytes": "peak memory (bytes), lower is better",
    "energy_mj_per_token": "energy per token (mJ), lower is better",
}


def spec_of(record: RunRecord) -> SweepSpec:
    """The sweep that was asked for."""
    return SweepSpec.model_validate(record.spec) if record.kind == "sweep" else SweepSpec()


def judged(record: RunRecord, results: Sequence[TrialResult]) -> Verdict:
    """Judge the finished trials."""
    return judge_results(results, spec_of(record))
