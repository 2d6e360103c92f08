"""Measure one configuration on one workload, honestly.

The requests are cut into rounds. Every round is served by the baseline and by the configuration on
the same prompts, and the order alternates, so that clocks, heat and neighbours weigh on both. A
warm-up comes first and is not counted. All times come from the engine's own records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from profiles.metrics import summarize
from profiles.records import (
    MemorySplit,
    PairedRound,
    RequestRecord,
    ServeMetrics,
    StepRecord,
    TextCheck,
    TrialConfig,
)
from tuner.engines.base import Engine, Prepared, Progress, Request

ROUNDS = 8
WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Served:
    """The records of one round."""

    steps: list[StepRecord]
    requests: list[RequestRecord]

    @property
    def start_s(self) -> float:
        """When the first request arrived."""
        return min(r.arrival_s for r in self.requests)

    @property
    def end_s(self) -> float:
        """When the last token was emitted."""
        return max(r.emission_s[-1] for r in self.requests)

    @property
    def tokens(self) -> int:
        """Tokens that reached the users."""
        return sum(r.output_tokens for r in self.requests)


@dataclass(slots=True)
class Measurement:
    """What the rounds gave, with the engine's own account of itself."""

    prepared: Prepared
    memory: MemorySplit
    trial: list[Served] = field(default_factory=list)
    baseline: list[Served] = field(default_factory=list)
    rounds: list[PairedRound] = field(default_factory=list)


def measure(
    engine: Engine,
    config: TrialConfig,
    requests: Sequence[Request],
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Measurement:
    """Serve `requests` with `config`, and with its baseline when it speculates.

    Raises:
        BadInput, UnsupportedConfig, OutOfMemory, EngineFailure: as the engine says.
    """
    progress = on_progress or (lambda fraction, text: None)
    longest = max(len(r.prompt_token_ids) + r.max_new_tokens for r in requests)
    prepared = engine.prepare(config, longest, lambda f, text: progress(0.3 * f, text))
    result = Measurement(prepared, engine.memory())
    sides = [config] if config.draft_len == 0 else [config.baseline(), config]
    warm_up = [_shortened(r) for r in requests[: config.batch_size]]
    for side in sides:
        engine.prepare(side, longest)
        _serve(engine, warm_up, seed)
    chunks = cut_rounds(requests, config.batch_size)
    for index, chunk in enumerate(chunks):
        progress(0.3 + 0.7 * index / len(chunks), f"round {index + 1} of {len(chunks)}")
        served = _serve_sides(
            engine, sides if index % 2 == 0 else sides[::-1], chunk, longest, seed
        )
        _record_round(result, index, sides, served)
    result.memory = engine.memory()
    progress(1.0, "measured")
    return result


def _serve_sides(
    engine: Engine,
    order: Sequence[TrialConfig],
    requests: Sequence[Request],
    max_seq_len: int,
    seed: int,
) -> dict[TrialConfig, Served]:
    """Serve the same requests with each config, in this order."""
    served = {}
    for config in order:
        engine.prepare(config, max_seq_len)
        served[config] = _serve(engine, requests, seed)
    return served


def _record_round(
    result: Measurement,
    index: int,
    sides: Sequence[TrialConfig],
    served: dict[TrialConfig, Served],
) -> None:
    trial = served[sides[-1]]
    result.trial.append(trial)
    if len(sides) == 1:
        return
    baseline = served[sides[0]]
    result.baseline.append(baseline)
    first = next(iter(served))
    result.rounds.append(
        PairedRound(
            round=index,
            order="baseline_first" if first is sides[0] else "trial_first",
            baseline_s=baseline.end_s - baseline.start_s,
            baseline_tokens=baseline.tokens,
            trial_s=trial.end_s - trial.start_s,
            trial_tokens=trial.tokens,
        )
    )


def cut_rounds(requests: Sequence[Request], batch_size: int) -> list[list[Request]]:
    """Cut into at most `ROUNDS` rounds of equal size, each filling the batch at least once."""
    size = max(batch_size, math.ceil(len(requests) / ROUNDS))
    chunks = [list(requests[i : i + size]) for i in range(0, len(requests), size)]
    if len(chunks) > 1 and len(chunks[-1]) < min(batch_size, size):
        last = chunks.pop()  # a round that cannot fill the batch would measure another load
        chunks[-1] += last
    return chunks


def metrics_of(rounds: Sequence[Served], config: TrialConfig) -> ServeMetrics:
    """Summarise rounds as if they had been served back to back."""
    steps: list[StepRecord] = []
    requests: list[RequestRecord] = []
    clock = 0.0
    for served in rounds:
        shift = clock - served.start_s
        steps += [replace(s, start_s=s.start_s + shift) for s in served.steps]
        requests += [
            replace(r, arrival_s=r.arrival_s + shift, emission_s=[t + shift for t in r.emission_s])
            for r in served.requests
        ]
        clock += served.end_s - served.start_s
    return summarize(steps, requests, config.beam_width, config.draft_len)


def compare_text(trial: Sequence[Served], baseline: Sequence[Served]) -> TextCheck:
    """Compare the tokens of every request with the baseline's."""
    expected = {r.id: r.output_token_ids for served in baseline for r in served.requests}
    equal, first = 0, None
    answers = [r for served in trial for r in served.requests]
    for request in answers:
        theirs = expected[request.id]
        if request.output_token_ids == theirs:
            equal += 1
        elif first is None:
            pairs = enumerate(zip(request.output_token_ids, theirs, strict=False))
            shorter = min(len(request.output_token_ids), len(theirs))
            position = next((i for i, (a, b) in pairs if a != b), shorter)
            first = f"request {request.id}, output token {position}"
    return TextCheck(requests=len(answers), equal=equal, first_difference=first)


def _serve(engine: Engine, requests: Sequence[Request], seed: int) -> Served:
    served = Served([], [])
    for record in engine.serve(requests, seed):
        if isinstance(record, StepRecord):
            served.steps.append(record)
        else:
            served.requests.append(record)
    return served


def _shortened(request: Request) -> Request:
    return replace(request, max_new_tokens=min(WARM_UP_TOKENS, request.max_new_tokens))
