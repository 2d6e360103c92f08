"""What the engine's memory holds, trial by trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.charts.style import GREY, PALETTE, figure, message
from dashboard.charts.trial_axis import stack_by_trial, trial_labels
from dashboard.formats import MIB
from profiles.records import TrialResult

PARTS = {
    "base model weights": "weights_bytes",
    "drafter": "drafter_bytes",
    "KV cache": "kv_bytes",
    "rest": "rest_bytes",
}
COLOURS = (*PALETTE[:3], GREY)


@dataclass(frozen=True)
class MemorySplits:
    """MiB by part, one entry a trial; what was not measured is None."""

    labels: tuple[str, ...]
    mebibytes: dict[str, tuple[float | None, ...]]
    reasons: tuple[str, ...]


def memory_split_info(results: Sequence[TrialResult]) -> MemorySplits:
    """Collect every trial whose memory is known."""
    known = [(r, r.memory) for r in results if r.memory]
    return MemorySplits(
        labels=trial_labels([r for r, _ in known]),
        mebibytes={
            part: tuple(_mebibytes(getattr(memory, field)) for _, memory in known)
            for part, field in PARTS.items()
        },
        reasons=tuple(dict.fromkeys(memory.reason for _, memory in known if memory.reason)),
    )


def _mebibytes(value: int | None) -> float | None:
    return None if value is None else value / MIB


def memory_split_figure(info: MemorySplits) -> go.Figure:
    """Stack the parts."""
    if not info.labels:
        return message("No trial reported its memory.")
    chart = figure("Trial", "Memory (MiB)")
    for (part, values), colour in zip(info.mebibytes.items(), COLOURS, strict=True):
        chart.add_bar(
            x=list(info.labels),
            y=list(values),
            name=part,
            marker={"color": colour},
            hovertemplate=f"{part}: %{{y:,.0f}} MiB<extra>%{{x}}</extra>",
        )
    stack_by_trial(chart, info.labels)
    return chart
