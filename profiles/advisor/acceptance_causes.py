"""Which causes of low acceptance the record itself supports, the strongest first."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Knob
from profiles.records import ServeMetrics

WEAK_FIRST_POSITION = 0.5  # our judgement; the shipped drafter gives 0.6 with a single beam
FAR_BELOW = 0.5  # our judgement: half the accepted tokens per step of the other categories
RARELY_REACHED = 0.10  # our judgement: a position accepted in fewer steps costs more than it gives


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause, the experiment that would settle it, and its knobs."""

    text: str
    next_experiment: str
    knobs: dict[Knob, list[int | float | str]] = field(default_factory=dict)


def supported_causes(evidence: Evidence, metrics: ServeMetrics) -> list[Cause]:
    """Return the causes that numbers of this trial point to; none is proven by them."""
    if evidence.is_shape_only:
        return [_shape_only()]
    temperature = evidence.result.workload.temperature
    found = [
        _temperature(temperature),
        _weak_category(metrics),
        _long_draft(metrics, evidence.result.config.draft_len),
        _weak_drafter(metrics, temperature),
    ]
    return [cause for cause in found if cause is not None]


def _shape_only() -> Cause:
    return Cause(
        "the workload gives only lengths: its prompts are no text that a drafter could continue",
        "Measure acceptance on a workload with real text before choosing beam_width or draft_len.",
    )


def _temperature(temperature: float) -> Cause | None:
    if temperature == 0:
        return None
    return Cause(
        f"temperature = {temperature:g}: sampled tokens are harder to guess than greedy ones",
        "Measure the same config at temperature 0: what is missing there is the drafter's share.",
        {"temperature": [0.0]},
    )


def _weak_category(metrics: ServeMetrics) -> Cause | None:
    """The category with the fewest accepted tokens per step, if it is far below the others."""
    lengths = metrics.acceptance_length_by_category
    if len(lengths) < 2:
        return None
    worst = min(lengths, key=lambda category: lengths[category])
    others = median(length for category, length in lengths.items() if category != worst)
    if lengths[worst] - 1 >= FAR_BELOW * (others - 1):
        return None
    return Cause(
        f"category {worst!r} is far below the others: acceptance_length {lengths[worst]:.2f} "
        f"against a median of {others:.2f} tokens per step ({metrics.requests} requests in "
        f"{len(lengths)} categories)",
        f"Measure {worst!r} by itself, and train the drafter on answers of that kind.",
    )


def _long_draft(metrics: ServeMetrics, draft_len: int) -> Cause | None:
    """Positions that few steps reach, behind a first position that is fine."""
    reach, worth = 1.0, 0
    for position in metrics.position_acceptance:
        reach *= position or 0.0
        if reach < RARELY_REACHED:
            break
        worth += 1
    first = metrics.position_acceptance[0] if metrics.position_acceptance else None
    if first is None or first < WEAK_FIRST_POSITION or not 0 < worth < draft_len:
        return None
    return Cause(
        f"the draft is longer than the drafter sees: position 1 is accepted in {first:.1%} of "
        f"steps, position {worth + 1} in under {RARELY_REACHED:.0%}",
        f"Try shorter drafts: draft_len {worth} keeps every position that is often reached.",
        {"draft_len": list(range(max(1, worth - 1), worth + 1))},
    )


def _weak_drafter(metrics: ServeMetrics, temperature: float) -> Cause | None:
    first = metrics.position_acceptance[0] if metrics.position_acceptance else None
    if first is None or first >= WEAK_FIRST_POSITION or temperature > 0:
        return None
    return Cause(
        f"the drafter may be undertrained: position_acceptance[0] = {first:.1%} at temperature 0, "
        f"under {WEAK_FIRST_POSITION:.0%}, so even the first drafted token is often wrong",
        "Evaluate the drafter alone with `tuner eval-drafter`, then train it longer or on answers "
        "of the base model itself (`tuner train-drafter`).",
    )
