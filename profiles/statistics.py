"""Speed-ups with their uncertainty, and outputs that must not count.

A round serves the same prompts through the baseline and through the trial, side by side in time,
so rounds are the unit of resampling: tokens and seconds inside one round share clocks and heat.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from profiles.records import PairedRound, Speedup


def paired_speedup(
    rounds: Sequence[PairedRound], seed: int = 0, resamples: int = 10_000
) -> Speedup:
    """Ratio of total output tokens/s, trial over baseline, with a percentile bootstrap interval.

    Rounds are drawn with replacement; `ci95` holds the 2.5th and 97.5th percentiles. One round
    has nothing to resample, so its interval is `(speedup, speedup)`: read it as "unknown".

    Raises:
        ValueError: no rounds, or a round with no tokens or without positive, finite seconds.
    """
    speedup = float(_ratio(_totals(rounds)))
    low, high = np.percentile(
        _bootstrap(rounds, np.random.default_rng(seed), resamples), (2.5, 97.5)
    )
    return Speedup(speedup=speedup, ci95=(float(low), float(high)), rounds=len(rounds))


def speedup_draws(
    rounds: Sequence[PairedRound], seed: int = 0, resamples: int = 10_000
) -> NDArray[np.float64]:
    """`resamples` bootstrap draws of the speed-up, each over rounds drawn with replacement.

    Raises:
        ValueError: rounds that `paired_speedup` refuses.
    """
    return _bootstrap(rounds, np.random.default_rng(seed), resamples)


def probability_best(draws: Mapping[int, NDArray[np.float64]]) -> dict[int, float]:
    """Share of draws in which each candidate is the largest; a tie is shared evenly.

    Candidates with a single draw are taken as known exactly.

    Raises:
        ValueError: no candidates.
    """
    if not draws:
        raise ValueError("no candidates to compare")
    table = np.stack(np.broadcast_arrays(*draws.values()))
    best = table == table.max(axis=0)
    shares = (best / best.sum(axis=0)).mean(axis=1)
    return {number: float(share) for number, share in zip(draws, shares, strict=True)}


def repeats_itself(token_ids: Sequence[int], n: int = 8, threshold: float = 0.5) -> bool:
    """Whether more than `threshold` of the output's n-grams repeat an earlier one.

    Text that loops is trivially easy to draft, so its acceptance says nothing about real use.
    An output shorter than `n` tokens does not repeat itself.
    """
    total = len(token_ids) - n + 1
    if total < 1:
        return False
    distinct = len({tuple(token_ids[i : i + n]) for i in range(total)})
    return (total - distinct) / total > threshold


def _totals(rounds: Sequence[PairedRound]) -> NDArray[np.float64]:
    """One row a round: trial tokens, trial s, baseline tokens, baseline s."""
    if not rounds:
        raise ValueError("no paired rounds: a speed-up needs at least one")
    for r in rounds:
        for name in ("trial_tokens", "trial_s", "baseline_tokens", "baseline_s"):
            value = getattr(r, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"round {r.round}: {name} = {value} must be positive and finite")
    return np.array(
        [(r.trial_tokens, r.trial_s, r.baseline_tokens, r.baseline_s) for r in rounds],
        dtype=np.float64,
    )


def _ratio(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Speed-up of `[..., rounds, 4]` totals, summed over rounds."""
    trial_tokens, trial_s, baseline_tokens, baseline_s = np.moveaxis(totals.sum(axis=-2), -1, 0)
    return (trial_tokens / trial_s) / (baseline_tokens / baseline_s)


def _bootstrap(
    rounds: Sequence[PairedRound], generator: np.random.Generator, resamples: int
) -> NDArray[np.float64]:
    """`resamples` speed-ups, each over rounds drawn with replacement."""
    totals = _totals(rounds)
    chosen = generator.integers(0, len(rounds), size=(resamples, len(rounds)))
    return _ratio(totals[chosen])
