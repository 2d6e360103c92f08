"""The trials table: one row a trial, by number, rows only ever added at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pandas as pd

from dashboard.formats import MIB, interval
from profiles.records import TrialConfig, TrialResult, TrialState
from profiles.store import RunFolder

_RARE = (
    "drafter",
    "draft_vocab_size",
    "drafter_quantization",
    "draft_len_min",
    "speculate_up_to",
)
BASELINE_NOTE = "no speculation: the baseline"


@dataclass(frozen=True)
class TrialRow:
    """What the table shows of one trial; None is not measured, and `note` says why."""

    trial: int
    beam_width: int | None
    draft_len: int
    draft_len_min: int | None
    speculate_up_to: int | None
    batch_size: int
    precision: str
    drafter: str | None = None
    draft_vocab_size: int | None = None
    drafter_quantization: str | None = None
    tokens_per_s: float | None = None
    speedup: float | None = None
    interval: str | None = None
    acceptance_length: float | None = None
    tpot_ms_p95: float | None = None
    ttft_ms_p95: float | None = None
    memory_peak_mib: float | None = None
    state: str = "running"
    note: str = ""


def trial_rows(run: RunFolder, results: Sequence[TrialResult], unfinished: bool) -> list[TrialRow]:
    """Every trial of `run`, those without a result too."""
    rows = finished_rows(results)
    for number in sorted(set(run.trial_numbers()) - {r.number for r in results}):
        config = run.trial(number).config()
        if config is not None:
            rows.append(_pending(number, config, unfinished))
    return sorted(rows, key=lambda row: row.trial)


def finished_rows(results: Sequence[TrialResult]) -> list[TrialRow]:
    """The trials that have a result, measured or not."""
    return [_finished(result) for result in results]


def failures(results: Sequence[TrialResult]) -> dict[str, list[int]]:
    """Every reason for which trials failed, in full, with their numbers."""
    reasons: dict[str, list[int]] = {}
    for result in results:
        if result.error:
            reasons.setdefault(result.error, []).append(result.number)
    return reasons


def as_frame(rows: Sequence[TrialRow]) -> pd.DataFrame:
    """The rows as a frame, its columns there even without rows, rare knobs where they differ."""
    names = [f.name for f in fields(TrialRow)]
    for name in _RARE:
        if len({getattr(row, name) for row in rows if row.draft_len}) < 2:
            names.remove(name)
    return pd.DataFrame([asdict(row) for row in rows], columns=names)


def note_of(result: TrialResult) -> str:
    """Why a trial does not count, or what to know about it."""
    if result.error:
        return result.error
    if result.violations:
        return "; ".join(result.violations)
    if result.config.draft_len == 0:
        return BASELINE_NOTE
    if result.text and not result.text.all_equal:
        return f"text differs in {result.text.requests - result.text.equal} requests"
    return ""


def _finished(result: TrialResult) -> TrialRow:
    metrics = result.metrics
    peak = result.memory.peak_bytes if result.memory else None
    return TrialRow(
        trial=result.number,
        **_knobs(result.config, result.precision),
        tokens_per_s=metrics.output_tokens_per_s if metrics else None,
        speedup=result.speedup.speedup if result.speedup else None,
        interval=interval(result.speedup),
        acceptance_length=metrics.acceptance_length if metrics else None,
        tpot_ms_p95=metrics.tpot_ms.p95 if metrics and metrics.tpot_ms else None,
        ttft_ms_p95=metrics.ttft_ms.p95 if metrics else None,
        memory_peak_mib=peak / MIB if peak is not None else None,
        state="over a limit" if _over_a_limit(result) else result.state.value,
        note=note_of(result),
    )


def _knobs(config: TrialConfig, precision: str | None) -> dict[str, Any]:
    """What was asked for; without speculation there is no drafter."""
    drafts = config.draft_len > 0
    return {
        "beam_width": config.beam_width if drafts else None,
        "draft_len": config.draft_len,
        "draft_len_min": config.draft_len_min,
        "speculate_up_to": config.speculate_up_to,
        "batch_size": config.batch_size,
        "precision": _precision(config, precision),
        "drafter": config.drafter or "default" if drafts else None,
        "draft_vocab_size": config.draft_vocab_size if drafts else None,
        "drafter_quantization": config.drafter_quantization or "default" if drafts else None,
    }


def _precision(config: TrialConfig, precision: str | None) -> str:
    name = precision or config.quantization or "default"
    return name if config.kv_cache_dtype == "auto" else f"{name}, {config.kv_cache_dtype} KV cache"


def _over_a_limit(result: TrialResult) -> bool:
    return result.state is TrialState.INFEASIBLE and bool(result.violations)


def _pending(number: int, config: TrialConfig, unfinished: bool) -> TrialRow:
    return TrialRow(
        trial=number,
        **_knobs(config, None),
        state="running" if unfinished else "interrupted",
        note="" if unfinished else "cut short; it is measured again when the run is resumed",
    )
