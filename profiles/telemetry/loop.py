"""The sampler's loop: one tick, one row for each source, parts written every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from profiles.telemetry.counters import Source, Value
from profiles.telemetry.parts import PartWriter, Reasons, write_reasons

FLUSH_EVERY_S = 5.0


class Recorder:
    """Samples its sources on demand and keeps the rows until they are flushed to `folder`."""

    def __init__(self, folder: Path, sources: Sequence[Source], notices: Sequence[str]) -> None:
        self._folder = folder
        self._sources = sources
        self._notices = list(notices)
        self._writer = PartWriter(folder)
        self._rows: list[dict[str, Value]] = []
        self._written: Reasons | None = None

    def tick(self, full: bool = False) -> None:
        """Take one row from every source; a `full` one holds the costly counters too."""
        t_s, unix_s = time.monotonic(), time.time()
        for source in self._sources:
            key: dict[str, Value] = {"t_s": t_s, "unix_s": unix_s, "source": source.name}
            self._rows.append({**key, **source.sample(t_s, full)})

    def flush(self) -> None:
        """Write what was collected, and the reasons where they changed. Raises StorageError."""
        reasons = Reasons(
            notices=self._notices,
            columns={source.name: dict(source.missing()) for source in self._sources},
        )
        if reasons != self._written:
            write_reasons(self._folder, reasons)
            self._written = reasons
        if self._rows:
            self._writer.write(self._rows)
            self._rows = []

    def close(self) -> None:
        """Release every source."""
        for source in self._sources:
            source.close()


def run_loop(
    recorder: Recorder,
    hz: float,
    wait: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
    flush_every_s: float = FLUSH_EVERY_S,
) -> None:
    """Tick at `hz` until `wait(seconds)` says True for "stop"; then tick fully, flush and close.

    Tick k is due at start + k / hz, so late ticks do not shift later ones. Moments that passed
    during a stall are skipped, never caught up on: they would all read the same counters.
    """
    start_s = flushed_s = clock()
    due = 0
    try:
        while True:
            recorder.tick()
            now_s = clock()
            if now_s - flushed_s >= flush_every_s:
                recorder.flush()
                flushed_s = now_s
                now_s = clock()
            due = max(due + 1, int((now_s - start_s) * hz) + 1)
            if wait(max(0.0, start_s + due / hz - now_s)):
                recorder.tick(full=True)  # so that the energy reaches to the end of the work
                return
    finally:
        try:
            recorder.flush()
        finally:
            recorder.close()
