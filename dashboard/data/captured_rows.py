"""What a profiler saw of a trial, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import pandas as pd

from profiles.nsight.phases import CapturedPhases


@dataclass(frozen=True)
class CapturedRow:
    """One phase over all captured steps; None is not in the capture."""

    phase: str
    host_ms: float | None
    gpu_busy_ms: float | None
    kernel_ms: float | None
    kernels: int | None
    launches: int | None
    graphs: int | None
    gap_before_ms: float | None


def captured_rows(captured: CapturedPhases) -> list[CapturedRow]:
    """Phases in the order of a step."""
    return [
        CapturedRow(
            phase=phase.phase,
            host_ms=_ms(phase.host_ns),
            gpu_busy_ms=_ms(phase.gpu_busy_ns),
            kernel_ms=_ms(phase.kernel_ns),
            kernels=phase.kernels,
            launches=phase.launches,
            graphs=phase.graphs,
            gap_before_ms=_ms(phase.gap_before_ns),
        )
        for phase in captured.phases
    ]


def captured_frame(rows: Sequence[CapturedRow]) -> pd.DataFrame:
    """The rows as a frame, its columns there even without rows."""
    return pd.DataFrame(
        [asdict(row) for row in rows], columns=[f.name for f in fields(CapturedRow)]
    )


def _ms(ns: int | None) -> float | None:
    return ns / 1e6 if ns is not None else None
