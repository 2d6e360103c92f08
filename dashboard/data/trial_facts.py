"""The single numbers of one trial, in words."""

from __future__ import annotations

from dashboard.formats import (
    MISSING,
    mebibytes,
    missing,
    moment,
    number,
    percent,
    ratio,
    tokens_per_s,
)
from profiles.records import EnergyUse, RunRecord, ServeMetrics, TrialResult

Fact = tuple[str, str]
MEMORY = {
    "Peak memory": "peak_bytes",
    "Memory of weights": "weights_bytes",
    "Memory of the drafter": "drafter_bytes",
    "Memory of the KV cache": "kv_bytes",
    "Memory of the rest": "rest_bytes",
}
NO_DRAFTS = "this trial does not speculate"


def facts(result: TrialResult) -> list[Fact]:
    """Name and value, most asked for first; what is missing says why."""
    metrics = result.metrics
    if metrics is None:
        return []
    no_drafts = None if result.config.draft_len else NO_DRAFTS
    return [
        ("Speed-up [95 % interval]", ratio(result.speedup, no_drafts)),
        ("Output per user", tokens_per_s(metrics.output_tokens_per_s_per_user)),
        ("Path acceptance: (length - 1) / D", percent(metrics.path_acceptance_rate, no_drafts)),
        ("Tree acceptance: accepted / drafted", percent(metrics.tree_acceptance_rate, no_drafts)),
        ("Tree nodes per step and request", number(metrics.tree_nodes_mean)),
        ("Beam diversity: (nodes - 1) / (W x D)", number(metrics.beam_diversity, no_drafts)),
        ("Mean step", f"{metrics.step_ms_mean:.1f} ms over {metrics.steps:,} steps"),
        ("Served", f"{metrics.requests} requests, {metrics.output_tokens:,} tokens"),
        *_memory(result),
        ("Energy per token", _energy(result.energy)),
        ("Device", result.device or missing(None)),
        ("Precision", f"{result.precision or missing(None)} ({result.compute or 'unknown path'})"),
    ]


def _memory(result: TrialResult) -> list[Fact]:
    """Each part in use, and what was predicted before anything was loaded."""
    used, told = result.memory, result.memory_predicted
    if used is None:
        return [("Peak memory", missing(None))]
    rows = []
    for name, field in MEMORY.items():
        value = mebibytes(getattr(used, field), used.reason)
        if told is not None:
            value += f", predicted {mebibytes(getattr(told, field), told.reason)}"
        rows.append((name, value))
    return rows


def config_facts(result: TrialResult) -> list[Fact]:
    """What ran, field by field, and on which workload."""
    config, workload = result.config, result.workload
    chosen = config.model_dump() | {"quantization": config.quantization or "the host's default"}
    fields = [
        (name.replace("_", " "), str(value)) for name, value in chosen.items() if value is not None
    ]
    served = f"{workload.workload}, {workload.requests} requests of at most "
    return [
        *fields,
        ("workload", f"{served}{workload.max_new_tokens} new tokens, seed {workload.seed}"),
        ("temperature", f"{workload.temperature:g}"),
        ("config hash", result.config_hash),
    ]


def evidence(record: RunRecord, result: TrialResult) -> list[Fact]:
    """What a config rests on, for whoever is to deploy it."""
    metrics, hardware = result.metrics, record.hardware
    if metrics is None:
        return []
    no_drafts = None if result.config.draft_len else NO_DRAFTS
    gpus = [f"{gpu.name} (driver {gpu.driver or 'unknown'})" for gpu in hardware.gpus]
    return [
        ("Output", tokens_per_s(metrics.output_tokens_per_s)),
        ("Speed-up [95 % interval]", ratio(result.speedup, no_drafts)),
        ("Acceptance length", f"{number(metrics.acceptance_length)} tokens per step"),
        ("Served", f"{metrics.requests} requests, {metrics.output_tokens:,} tokens"),
        ("Workload", f"{result.workload.workload}, hash {record.workload_hash[:12]}"),
        ("Device", f"{result.device or 'unknown'}, {result.precision or 'unknown precision'}"),
        ("Host", ", ".join([f"{hardware.cpu}, {hardware.cores} cores", *gpus])),
        ("Measured", moment(result.finished_at or result.started_at)),
        ("Software", f"torch {record.versions.get('torch', MISSING)}, {_commit(record.git_sha)}"),
    ]


def _commit(sha: str | None) -> str:
    if sha is None:
        return "no commit recorded"
    commit, _, dirty = sha.partition("-")
    return f"commit {commit[:12]}" + (" with changes" if dirty else "")


def _energy(energy: EnergyUse | None) -> str:
    if energy is None or energy.energy_mj_per_token is None:
        return missing(energy.reason if energy else None)
    return f"{energy.energy_mj_per_token:,.0f} mJ"


def latencies(metrics: ServeMetrics) -> list[dict[str, object]]:
    """One row a latency, one column a percentile (ms)."""
    named = {
        "TTFT: to the first token": metrics.ttft_ms,
        "TPOT: per token after it": metrics.tpot_ms,
        "ITL: between emissions": metrics.itl_ms,
        "End to end": metrics.e2e_ms,
    }
    return [
        {
            "latency": name,
            "p50": values.p50 if values else None,
            "p95": values.p95 if values else None,
            "p99": values.p99 if values else None,
            "mean": values.mean if values else None,
        }
        for name, values in named.items()
    ]
