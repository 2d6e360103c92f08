"""Serve a trial with a few of its steps recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from profiles.records import StepRecord, TrialConfig
from profiles.trial_capture import CaptureWindow
from tuner.engines.base import Engine, Progress, Request
from tuner.measure import Measurement, Served


class Window:
    """Records the first `steps` steps after the warm-up; `captured` says which they were."""

    def __init__(self, recording: Callable[[], AbstractContextManager[None]], steps: int) -> None:
        self._recording = recording
        self._steps = steps
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
        records = engine.serve(requests, seed)
        with self._recording():
            start_s = time.perf_counter()
            for record in records:
                _keep(served, record)
                if len(served.steps) == self._steps:
                    break
            end_s = time.perf_counter()
        self.captured = CaptureWindow(steps=len(served.steps), start_s=start_s, end_s=end_s)
        for record in records:
            _keep(served, record)
        return served


def _keep(served: Served, record: object) -> None:
    if isinstance(record, StepRecord):
        served.steps.append(record)
    else:
        served.requests.append(record)  # type: ignore[arg-type]
