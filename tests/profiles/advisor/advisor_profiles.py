"""Hand-made recorded profiles: a healthy trial, and what to change about it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from profiles.advisor import Evidence
from profiles.records import (
    GpuInfo,
    Hardware,
    Percentiles,
    ServeMetrics,
    Speedup,
    TimeShare,
    TrialConfig,
    TrialResult,
    TrialState,
    WorkloadSpec,
)
from profiles.served_telemetry import tally_served
from profiles.telemetry.columns import COLUMNS, GPU_NAMES, HOST_NAMES
from profiles.telemetry.samples import SourceSamples

STEPS, STEP_MS = 200, 20.0
H200 = GpuInfo(uuid="GPU-1", name="NVIDIA H200", memory_total_bytes=100 * 2**30, driver="580.1")


@dataclass(frozen=True)
class Case:
    """A profile in which a rule fires, the evidence it must cite, and one where it is silent."""

    fires: Evidence
    cites: list[str]
    silent: Evidence


def percentiles(p50: float, p95: float) -> Percentiles:
    return Percentiles(p50=p50, p95=p95, p99=p95, mean=p50)


def metrics(**changes) -> ServeMetrics:
    """Beam width 4, draft length 4: 10.5 of 16 nodes distinct, 45 % of the path accepted."""
    values = {
        "requests": 16,
        "output_tokens": 576,
        "duration_s": 4.0,
        "output_tokens_per_s": 144.0,
        "output_tokens_per_s_per_user": 144.0,
        "steps": STEPS,
        "committed_tokens": 560,
        "acceptance_length": 2.8,
        "acceptance_length_by_category": {"code": 3.0, "chat": 2.6},
        "path_acceptance_rate": 0.45,
        "tree_acceptance_rate": 0.17,
        "position_acceptance": [0.7, 0.65, 0.6, 0.6],
        "tree_nodes_mean": 11.5,
        "beam_diversity": 10.5 / 16,
        "ttft_ms": percentiles(30.0, 40.0),
        "tpot_ms": percentiles(7.0, 8.0),
        "itl_ms": percentiles(20.0, 24.0),
        "e2e_ms": percentiles(250.0, 300.0),
        "time_share": TimeShare(draft=0.2, verify=0.6, accept=0.1, host=0.1),
        "step_ms_mean": STEP_MS,
    }
    return ServeMetrics(**values | changes)


def speedup(value: float, low: float, high: float, rounds: int = 8) -> Speedup:
    return Speedup(speedup=value, ci95=(low, high), rounds=rounds)


def result(number: int = 0, config=None, workload=None, **changes) -> TrialResult:
    """A complete trial that pays, on an H200 in bf16."""
    values = {
        "number": number,
        "state": TrialState.COMPLETE,
        "config": TrialConfig(**{"beam_width": 4, "draft_len": 4} | (config or {})),
        "config_hash": "0",
        "workload": WorkloadSpec(**workload or {}),
        "device": H200.name,
        "precision": "bf16",
        "metrics": metrics(),
        "speedup": speedup(1.5, 1.46, 1.54),
        "started_at": "2026-01-01T00:00:00+00:00",
    }
    return TrialResult(**values | changes)


def failed(error: str, **changes) -> TrialResult:
    """A trial that measured nothing."""
    values = {"state": TrialState.FAILED, "metrics": None, "speedup": None}
    values |= {"device": None, "precision": None, "error": error}
    return result(**values | changes)


def steps(reading: int = 0, reading_ms: float = STEP_MS) -> pd.DataFrame:
    """Steps back to back from 100 s on; the first `reading` of them also read a prompt."""
    rows, clock_s = [], 100.0
    for index in range(STEPS):
        took_ms = reading_ms if index < reading else STEP_MS
        rows.append(
            {
                "index": index,
                "start_s": clock_s,
                "prefill_ms": 0.0,
                "tree_ms": 0.0,
                "draft_ms": 4.0,
                "verify_ms": took_ms - 8.0,
                "accept_ms": 2.0,
                "host_ms": 2.0,
                "context_requests": int(index < reading),
                "request_ids": ["a"],
            }
        )
        clock_s += took_ms / 1e3
    return pd.DataFrame(rows)


def telemetry(gpu=None, host=None, start_s: float = 100.05, samples: int = 30) -> pd.DataFrame:
    """Samples at 10 Hz with the same values in each; a list gives every sample its own."""
    rows = [
        {"t_s": start_s + k / 10, "source": source} | _at(columns, k)
        for source, columns in (("GPU-1", gpu), ("host", host))
        if columns is not None
        for k in range(samples)
    ]
    return pd.DataFrame(rows, columns=[column.name for column in COLUMNS])


def hardware(cores: int = 8) -> Hardware:
    return Hardware(cpu="test", cores=cores, memory_total_bytes=2**35, gpus=[H200])


def evidence(trial: TrialResult | None = None, telemetry=None, **given) -> Evidence:
    """`telemetry` is tallied over `steps`, as a trial does it when it ends."""
    if telemetry is not None:
        given["served"] = tally_served(by_source(telemetry), given.get("steps", steps()[:0]))
    return Evidence(trial or result(), **given)


def by_source(frame: pd.DataFrame) -> dict[str, SourceSamples]:
    return {
        str(source): SourceSamples(
            rows["t_s"].to_numpy(),
            {name: rows[name].to_numpy(dtype=float) for name in (*GPU_NAMES, *HOST_NAMES)},
        )
        for source, rows in frame.groupby("source")
    }


def with_metrics(config=None, workload=None, **changes) -> Evidence:
    """The healthy trial with other numbers."""
    return evidence(result(config=config, workload=workload, metrics=metrics(**changes)))


def _at(columns: dict[str, object], k: int) -> dict[str, object]:
    return {name: v[k] if isinstance(v, list) else v for name, v in columns.items()}
