"""Run one trial in this process and write everything it gave to its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.hardware import fingerprint
from profiles.records import (
    EnergyUse,
    Hardware,
    ProfilerName,
    ServeMetrics,
    TrialConfig,
    TrialResult,
    TrialState,
    WorkloadSpec,
)
from profiles.served_telemetry import write_served_telemetry
from profiles.statistics import paired_speedup
from profiles.status import now_utc
from profiles.telemetry.energy import energy_between
from profiles.telemetry.merge import merge_parts
from profiles.telemetry.parts import read, read_reasons
from profiles.telemetry.sampler import Sampler
from profiles.trial_folder import TrialFolder
from tuner.engines import engine_class
from tuner.engines.base import Engine, Progress, Request
from tuner.errors import BadInput, OutOfMemory, TunerError
from tuner.explanation import explanation
from tuner.measure import Measurement, Served, compare_text, measure, metrics_of
from tuner.workloads import RequestBatch, build_requests, load_workload

MAX_PROMPT_TOKENS = 2048
Measuring = Callable[[Engine, TrialConfig, Sequence[Request], int, Progress | None], Measurement]


def config_hash(config: TrialConfig, workload: WorkloadSpec, workload_hash: str) -> str:
    """Identify a trial: the same hash is never measured twice in a run."""
    what = [config.model_dump(mode="json"), workload.model_dump(mode="json"), workload_hash]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A workload made ready for a model."""

    batch: RequestBatch
    content_hash: str
    reason: str | None  # why its acceptance says nothing, where it does not


def load_requests(config: TrialConfig, spec: WorkloadSpec) -> Loaded:
    """Read, render and tokenize the workload. Raises BadInput."""
    workload = load_workload(spec.workload)
    tokenizer = engine_class(config.engine).tokenizer(config)
    batch = build_requests(workload, tokenizer, spec, MAX_PROMPT_TOKENS)
    return Loaded(batch, workload.content_hash, workload.reason)


def run_trial(
    folder: TrialFolder,
    config: TrialConfig,
    spec: WorkloadSpec,
    engine: Engine | None = None,
    on_progress: Progress | None = None,
    measuring: Measuring = measure,
    profiler: ProfilerName | None = None,
) -> TrialResult:
    """Measure `config` and write config, result, tables and telemetry into `folder`.

    What the engine cannot do is a failed result with its error, not an exception. `measuring`
    serves the requests; a `profiler` that watches it is named in the result.

    Raises:
        BadInput: the workload or the model is wrong, before anything is measured.
        StorageError: the folder cannot be written.
    """
    started_at = now_utc()
    loaded = load_requests(config, spec)
    folder.write_config(config)
    engine = engine or engine_class(config.engine)()
    hardware = fingerprint()
    identity: dict[str, Any] = {
        "number": folder.number,
        "config": config,
        "config_hash": config_hash(config, spec, loaded.content_hash),
        "workload": spec,
        "started_at": started_at,
        "profiler": profiler,
    }
    # NOTE ncu replays kernels and wants the GPU's counters for itself: GPM would take them from it.
    gpus = () if profiler == "ncu" else engine.support(config.device).gpu_uuids
    try:
        with Sampler(folder.telemetry_dir, gpus=gpus) as sampler:
            sampler.wait_until_ready()
            measured = measuring(engine, config, loaded.batch.requests, spec.seed, on_progress)
    except BadInput:
        raise
    except TunerError as error:
        state = TrialState.INFEASIBLE if isinstance(error, OutOfMemory) else TrialState.FAILED
        predicted = error.predicted if isinstance(error, OutOfMemory) else None
        result = TrialResult(
            **identity,
            state=state,
            error=str(error),
            memory_predicted=predicted,
            finished_at=now_utc(),
        )
        folder.write_result(result)
        return result
    finally:
        engine.close()
    merge_parts(folder.telemetry_dir)
    _write_tables(folder, measured)
    write_served_telemetry(folder)
    outcome = _outcome(folder, config, spec, measured, hardware)
    if profiler is not None:
        outcome["energy"] = EnergyUse(
            energy_mj=None, energy_mj_per_token=None, reason=f"the trial ran under {profiler}"
        )
    result = TrialResult(**identity, **outcome, finished_at=now_utc())
    folder.write_result(result)
    return result


def _outcome(
    folder: TrialFolder,
    config: TrialConfig,
    spec: WorkloadSpec,
    measured: Measurement,
    hardware: Hardware,
) -> dict[str, Any]:
    """The measured fields of a complete result."""
    pairs = measured.rounds
    return {
        "state": TrialState.COMPLETE,
        "device": _device(measured, hardware),
        "precision": measured.prepared.precision,
        "compute": measured.prepared.compute,
        "prepare_s": measured.prepared.cost_s,
        "metrics": metrics_of(measured.trial, config),
        "baseline": metrics_of(measured.baseline, config.baseline()) if pairs else None,
        "rounds": pairs,
        "speedup": paired_speedup(pairs, seed=spec.seed) if pairs else None,
        "text": (
            compare_text(measured.trial, measured.baseline)
            if pairs and spec.temperature == 0
            else None
        ),
        "memory": measured.memory,
        "memory_predicted": measured.prepared.memory_predicted,
        "energy": _energy(folder, measured.trial),
        **explanation(config, measured),
    }


def _device(measured: Measurement, hardware: Hardware) -> str:
    device = measured.prepared.device
    return f"{hardware.cores} x {hardware.cpu}" if device == "cpu" else device


def _energy(folder: TrialFolder, rounds: Sequence[Served]) -> EnergyUse:
    """Sum the energy of the rounds; one without makes the sum missing."""
    samples = read(folder.telemetry_dir)
    reasons = read_reasons(folder.telemetry_dir)
    total = 0.0
    for served in rounds:
        use = energy_between(samples, served.start_s, served.end_s, reasons)
        if use.energy_mj is None:
            return use
        total += use.energy_mj
    tokens = sum(served.tokens for served in rounds)
    return EnergyUse(energy_mj=total, energy_mj_per_token=total / tokens)


def _write_tables(folder: TrialFolder, measured: Measurement) -> None:
    folder.write_steps([step for served in measured.trial for step in served.steps])
    folder.write_requests([r for served in measured.trial for r in served.requests])


def headline(result: TrialResult) -> dict[str, object]:
    """The documented object of `tuner run --json`."""
    metrics: ServeMetrics | None = result.metrics
    predicted = result.memory_predicted.model_dump() if result.memory_predicted else None
    if metrics is None:
        return {"state": result.state, "error": result.error, "memory_predicted": predicted}
    baseline, speedup = result.baseline, result.speedup
    return {
        "state": result.state,
        "profiler": result.profiler,
        "engine": result.config.engine,
        "model": result.config.model,
        "device": result.device,
        "precision": result.precision,
        "kv_cache_dtype": result.config.kv_cache_dtype,
        "compute": result.compute,
        "drafter": result.config.drafter,
        "draft_vocab_size": result.config.draft_vocab_size,
        "drafter_quantization": result.config.drafter_quantization,
        "beam_width": result.config.beam_width,
        "draft_len": result.config.draft_len,
        "draft_len_min": result.config.draft_len_min,
        "speculate_up_to": result.config.speculate_up_to,
        "batch_size": result.config.batch_size,
        "steps": metrics.steps,
        "committed_tokens": metrics.committed_tokens,
        "acceptance_length": metrics.acceptance_length,
        "acceptance_length_by_category": metrics.acceptance_length_by_category,
        "draft_len_mean": metrics.draft_len_mean,
        "path_acceptance_rate": metrics.path_acceptance_rate,
        "tree_acceptance_rate": metrics.tree_acceptance_rate,
        "position_acceptance": metrics.position_acceptance,
        "tree_nodes_mean": metrics.tree_nodes_mean,
        "beam_diversity": metrics.beam_diversity,
        "output_tokens_per_s": metrics.output_tokens_per_s,
        "baseline_output_tokens_per_s": baseline.output_tokens_per_s if baseline else None,
        "speedup": speedup.speedup if speedup else None,
        "speedup_ci95": list(speedup.ci95) if speedup else None,
        "rounds": len(result.rounds),
        "ttft_ms_p50": metrics.ttft_ms.p50,
        "ttft_ms_p95": metrics.ttft_ms.p95,
        "tpot_ms_p50": metrics.tpot_ms.p50 if metrics.tpot_ms else None,
        "tpot_ms_p95": metrics.tpot_ms.p95 if metrics.tpot_ms else None,
        "itl_ms_p95": metrics.itl_ms.p95 if metrics.itl_ms else None,
        "e2e_ms_p95": metrics.e2e_ms.p95,
        "memory": result.memory.model_dump() if result.memory else None,
        "memory_predicted": predicted,
        "memory_peak_bytes": result.memory.peak_bytes if result.memory else None,
        "energy_mj_per_token": result.energy.energy_mj_per_token if result.energy else None,
        "time_share": metrics.time_share.model_dump(),
        "step_ms_mean": metrics.step_ms_mean,
        "text_equal_to_baseline": result.text.all_equal if result.text else None,
        "text": result.text.model_dump() if result.text else None,
    }
