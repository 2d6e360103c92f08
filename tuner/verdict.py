"""Which config is best, by how much, and how surely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from profiles.records import PairedRound, Record, TrialResult, TrialState
from profiles.statistics import probability_best, speedup_draws
from profiles.store import RunFolder
from tuner.sweep.spec import HIGHER_IS_BETTER, Objective, SweepSpec, value_of

TIE_BELOW = 0.95  # a best config less probable than this is tied with those that could beat it
_UNLIKELY = 0.05


class Verdict(Record):
    """The answer of a sweep; `best` is null when nothing is feasible."""

    objective: Objective
    finished: int
    feasible: int
    best: int | None = None
    value: float | None = None
    speedup: float | None = None
    speedup_ci95: tuple[float, float] | None = None
    probability_best: float | None = None
    tied_with: list[int] = []
    verdict: str


def judge(run: RunFolder) -> Verdict:
    """Judge a sweep by what its trials measured."""
    return judge_results(run.trials(), SweepSpec.model_validate(run.record().spec))


def judge_results(results: Sequence[TrialResult], spec: SweepSpec) -> Verdict:
    """Judge finished trials under the sweep's objective and limits."""
    objective = spec.objective
    feasible = {
        r.number: value
        for r in results
        if r.state is TrialState.COMPLETE and (value := value_of(r, objective)) is not None
    }
    counts: dict[str, Any] = {
        "objective": objective,
        "finished": len(results),
        "feasible": len(feasible),
    }
    if not feasible:
        why = "nothing has finished yet" if not results else "no finished config meets the limits"
        return Verdict(**counts, verdict=f"No best config: {why}.")
    pick = max if objective in HIGHER_IS_BETTER else min
    number = pick(feasible, key=lambda n: feasible[n])
    by_number = {r.number: r for r in results}
    best = by_number[number]
    chances = _chances([by_number[n] for n in feasible]) if objective in HIGHER_IS_BETTER else {}
    probability = chances.get(number)
    tied = []
    if probability is not None and probability < TIE_BELOW:
        tied = [n for n, chance in chances.items() if n != number and chance > _UNLIKELY]
    return Verdict(
        **counts,
        best=number,
        value=feasible[number],
        speedup=best.speedup.speedup if best.speedup else None,
        speedup_ci95=best.speedup.ci95 if best.speedup else None,
        probability_best=probability,
        tied_with=tied,
        verdict=_sentence(best, probability, tied),
    )


def _chances(results: Sequence[TrialResult]) -> dict[int, float]:
    """Share of bootstrap draws in which each trial has the highest output tokens/s.

    A trial's throughput is its paired speed-up times the throughput of the baseline of its batch
    and precision, pooled over all trials that measured it: drift of the host cancels in the ratio.
    """
    pooled: dict[tuple[int, str | None], list[PairedRound]] = {}
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
    return probability_best(draws)


def _baseline_throughput(rounds: Sequence[PairedRound]) -> float | None:
    """Baseline output tokens/s over all rounds, or None without any."""
    seconds = sum(r.baseline_s for r in rounds)
    return sum(r.baseline_tokens for r in rounds) / seconds if rounds else None


def _load(result: TrialResult) -> tuple[int, str | None]:
    return result.config.batch_size, result.config.quantization


def _sentence(best: TrialResult, probability: float | None, tied: Sequence[int]) -> str:
    name = best.config.describe()
    if best.config.draft_len == 0:
        text = f"No speculation is best (trial {best.number}: {name})"
    else:
        text = f"Trial {best.number} is best: {name}"
    if best.speedup:
        low, high = best.speedup.ci95
        text += f", {best.speedup.speedup:.2f}x over no speculation (95 % {low:.2f} to {high:.2f})"
    if probability is None:
        return text + "."
    if tied:
        others = ", ".join(f"{n}" for n in tied)
        return text + f"; but it is a tie within noise with trial {others} ({probability:.0%})."
    return text + f"; best with probability {probability:.0%}."
