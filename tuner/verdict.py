"""Which config is best, by how much, and how surely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiles.records import PairedRound, Record, TrialResult, TrialState
from profiles.statistics import probability_best, speedup_draws
from profiles.store import RunFolder
from tuner.sweep.spec import HIGHER_IS_BETTER, Objective, SweepSpec, value_of

TIE_BELOW = 0.95  # a best config less probable than this is tied with those that could beat it
_UNLIKELY = 0.05


class BatchBest(Record):
    """The best config at one batch size; speculation that pays at one may lose at another."""

    batch_size: int
    best: int
    speedup: float | None
    speedup_ci95: tuple[float, float] | None
    words: str


class Verdict(Record):
    """The answer of a sweep; `best` is null when nothing is feasible.

    `value` is the best trial's objective. For output tokens/s it is freed of the host's drift, so
    that it can differ from what the trial itself measured (see `_throughput_draws`).
    """

    objective: Objective
    finished: int
    feasible: int
    best: int | None = None
    value: float | None = None
    speedup: float | None = None
    speedup_ci95: tuple[float, float] | None = None
    probability_best: float | None = None
    tied_with: list[int] = []
    by_batch: list[BatchBest] = []
    verdict: str


def judge(run: RunFolder) -> Verdict:
    """Judge a sweep by what its trials measured."""
    return judge_results(run.trials(), SweepSpec.model_validate(run.record().spec))


def judge_results(results: Sequence[TrialResult], spec: SweepSpec) -> Verdict:
    """Judge finished trials under the sweep's objective and limits."""
    objective = spec.objective
    feasible = [
        r
        for r in results
        if r.state is TrialState.COMPLETE and value_of(r, objective) is not None and not r.profiler
    ]
    counts: dict[str, Any] = {
        "objective": objective,
        "finished": len(results),
        "feasible": len(feasible),
    }
    if not feasible:
        why = "nothing has finished yet" if not results else "no finished config meets the limits"
        return Verdict(**counts, verdict=f"No best config: {why}.")
    if objective in HIGHER_IS_BETTER:
        draws = _throughput_draws(feasible)
        values = {number: float(np.mean(d)) for number, d in draws.items()}
        chances = probability_best(draws)
        order = sorted(values, key=lambda n: -values[n])
    else:
        values = {r.number: float(value_of(r, objective) or 0.0) for r in feasible}
        chances = {}
        order = sorted(values, key=lambda n: values[n])
    by_number = {r.number: r for r in feasible}
    number = order[0]
    best = by_number[number]
    probability = chances.get(number)
    tied = []
    if probability is not None and probability < TIE_BELOW:
        tied = [n for n, chance in chances.items() if n != number and chance > _UNLIKELY]
    return Verdict(
        **counts,
        best=number,
        value=values[number],
        speedup=best.speedup.speedup if best.speedup else None,
        speedup_ci95=best.speedup.ci95 if best.speedup else None,
        probability_best=probability,
        tied_with=tied,
        by_batch=_by_batch([by_number[n] for n in order]),
        verdict=_sentence(best, probability, tied),
    )


def _by_batch(best_first: Sequence[TrialResult]) -> list[BatchBest]:
    """The first trial of every batch size, in order of batch size."""
    firsts: dict[int, TrialResult] = {}
    for result in best_first:
        firsts.setdefault(result.config.batch_size, result)
    return [
        BatchBest(
            batch_size=batch,
            best=result.number,
            speedup=result.speedup.speedup if result.speedup else None,
            speedup_ci95=result.speedup.ci95 if result.speedup else None,
            words=f"batch {batch}: {_name(result)}{_gain(result)}",
        )
        for batch, result in sorted(firsts.items())
    ]


def _throughput_draws(results: Sequence[TrialResult]) -> dict[int, NDArray[np.float64]]:
    """Bootstrap draws of each trial's output tokens/s, freed of the host's drift.

    Trials run minutes apart, so their raw throughputs also tell how busy the host was. A trial's
    throughput is taken as its paired speed-up times the throughput of the baseline of its batch,
    precision and KV cache, pooled over all trials that measured it: what slowed one slowed its own
    pair.
    """
    pooled: dict[tuple[int, str | None, str], list[PairedRound]] = {}
    for result in results:
        pooled.setdefault(_load(result), []).extend(result.rounds)
    draws = {}
    for result in results:
        assert result.metrics is not None, "only complete trials are compared"
        baseline = _baseline_throughput(pooled[_load(result)])
        if result.rounds and baseline is not None:
            draws[result.number] = baseline * speedup_draws(result.rounds, seed=result.number)
        else:
            own = result.metrics.output_tokens_per_s
            draws[result.number] = np.array([own if baseline is None else baseline])
    return draws


def _baseline_throughput(rounds: Sequence[PairedRound]) -> float | None:
    """Baseline output tokens/s over all rounds, or None without any."""
    seconds = sum(r.baseline_s for r in rounds)
    return sum(r.baseline_tokens for r in rounds) / seconds if rounds else None


def _load(result: TrialResult) -> tuple[int, str | None, str]:
    config = result.config
    return config.batch_size, config.quantization, config.kv_cache_dtype


def _name(result: TrialResult) -> str:
    return f"trial {result.number}, {result.config.describe()}"


def _gain(result: TrialResult) -> str:
    if result.speedup is None:
        return ""
    low, high = result.speedup.ci95
    return f", {result.speedup.speedup:.2f}x over no speculation (95 % {low:.2f} to {high:.2f})"


def _sentence(best: TrialResult, probability: float | None, tied: Sequence[int]) -> str:
    if best.config.draft_len == 0:
        text = f"No speculation is best ({_name(best)})"
    else:
        text = f"Best is {_name(best)}{_gain(best)}"
    if probability is None:
        return text + "."
    if tied:
        others = ", ".join(map(str, tied))
        return text + f"; but it is a tie within noise with trial {others} ({probability:.0%})."
    return text + f"; best with probability {probability:.0%}."
