"""Where the time of a step goes, trial by trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.charts.style import PHASE_COLOURS, figure, message
from dashboard.charts.trial_axis import stack_by_trial, trial_labels
from profiles.records import STEP_PHASES, TrialResult


@dataclass(frozen=True)
class TimeShares:
    """Percent of step time by part, one entry a trial; the parts of a trial sum to 100."""

    labels: tuple[str, ...]
    percents: dict[str, tuple[float, ...]]
    step_ms: tuple[float, ...]


def time_share_info(results: Sequence[TrialResult]) -> TimeShares:
    """Collect every trial that was measured."""
    measured = [(r, r.metrics) for r in results if r.metrics]
    return TimeShares(
        labels=trial_labels([r for r, _ in measured]),
        percents={
            part: tuple(100 * getattr(metrics.time_share, part) for _, metrics in measured)
            for part in STEP_PHASES
        },
        step_ms=tuple(metrics.step_ms_mean for _, metrics in measured),
    )


def time_share_figure(info: TimeShares) -> go.Figure:
    """Stack the parts."""
    if not info.labels:
        return message("No trial has a measurement.")
    chart = figure("Trial", "Share of step time (%)")
    for part, colour in PHASE_COLOURS.items():
        chart.add_bar(
            x=list(info.labels),
            y=list(info.percents[part]),
            name=part,
            marker={"color": colour},
            customdata=list(info.step_ms),
            hovertemplate=(
                f"{part}: %{{y:.1f}} %<br>mean step %{{customdata:.1f}} ms<extra>%{{x}}</extra>"
            ),
        )
    stack_by_trial(chart, info.labels)
    chart.update_yaxes(range=[0, 100])
    return chart
