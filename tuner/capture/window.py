"""Serve a trial with a few of its steps recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from profiles.records import RequestRecord, StepRecord, TrialConfig
from profiles.trial_capture import CaptureWindow
from tuner.engines.base import Engine, Progress, Request
from tuner.measure import Measurement, Served


class Window:
    """Records `steps` steps after the warm-up; `captured` says when they were.

    It begins with the first step, or, without `reads_prompts`, after the first that read none.
    """

    def __init__(
        self,
        recording: Callable[[], AbstractContextManager[None]],
        steps: int,
        reads_prompts: bool = True,
    ) -> None:
        self._recording = recording
        self._steps = steps
        self._reads_prompts = reads_prompts
        self.captured: CaptureWindow | None = None

    def measure(
        self,
        engine: Engine,
        config: TrialConfig,
        requests: Sequence[Request],
        seed: int = 0,
        on_progress: Progress | None = None,
    ) -> Measurement:
        """Serve `requests` once, without a baseline: no time taken here is a measurement.

        The warm-up serves the first batch whole, so that nothing is met for the first time while
        it is recorded.

        Raises:
            BadInput, UnsupportedConfig, OutOfMemory, EngineFailure: as the engine says.
        """
        longest = max(len(r.prompt_token_ids) + r.max_new_tokens for r in requests)
        prepared = engine.prepare(config, longest, on_progress)
        for _ in engine.serve(requests[: config.batch_size], seed):
            pass
        served = self._serve(engine, requests, seed)
        return Measurement(prepared, engine.memory(), trial=[served])

    def _serve(self, engine: Engine, requests: Sequence[Request], seed: int) -> Served:
        served = Served([], [])
        records = engine.serve(requests, seed, ahead=False)
        if not self._reads_prompts:
            _keep(served, records, until=lambda step: not step.context_requests)
        before = len(served.steps)
        with self._recording():
            start_s = time.perf_counter()
            _keep(served, records, until=lambda _: len(served.steps) == before + self._steps)
            end_s = time.perf_counter()
        recorded = len(served.steps) - before
        self.captured = CaptureWindow(steps=recorded, start_s=start_s, end_s=end_s)
        _keep(served, records, until=lambda _: False)
        return served


def _keep(
    served: Served,
    records: Iterator[StepRecord | RequestRecord],
    until: Callable[[StepRecord], bool],
) -> None:
    """Keep records up to a step of which `until` is true, or all that there are."""
    for record in records:
        if isinstance(record, RequestRecord):
            served.requests.append(record)
            continue
        served.steps.append(record)
        if until(record):
            return
