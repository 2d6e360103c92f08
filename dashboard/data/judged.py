"""The verdict of a run."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.data.asked import spec_of
from profiles.records import TrialResult
from profiles.store import RunFolder
from tuner.verdict import Verdict, judge_results

OBJECTIVES = {
    "output_tokens_per_s": "output tokens/s, higher is better",
    "tpot_ms_p95": "TPOT p95 (ms), lower is better",
    "ttft_ms_p95": "TTFT p95 (ms), lower is better",
    "memory_peak_bytes": "peak memory (bytes), lower is better",
    "energy_mj_per_token": "energy per token (mJ), lower is better",
}


def judged(run: RunFolder, results: Sequence[TrialResult]) -> Verdict:
    """Judge the finished trials."""
    return judge_results(results, spec_of(run))
