"""Acceptance length against speed-up: the best acceptance need not be the best speed-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.charts.style import GREY, INK, batch_colours, figure, message
from profiles.records import TrialResult


@dataclass(frozen=True)
class Point:
    """One speculating trial; `low` and `high` bound the 95 % interval of its speed-up."""

    number: int
    batch_size: int
    acceptance_length: float
    speedup: float
    low: float
    high: float
    name: str


@dataclass(frozen=True)
class AcceptanceVsSpeedup:
    """The data of the chart, and which trial leads on each axis."""

    points: tuple[Point, ...]
    longest_acceptance: int | None
    highest_speedup: int | None


def acceptance_vs_speedup_info(results: Sequence[TrialResult]) -> AcceptanceVsSpeedup:
    """Collect every trial with a speed-up."""
    points = tuple(
        Point(
            number=r.number,
            batch_size=r.config.batch_size,
            acceptance_length=r.metrics.acceptance_length,
            speedup=r.speedup.speedup,
            low=r.speedup.ci95[0],
            high=r.speedup.ci95[1],
            name=r.config.describe(),
        )
        for r in results
        if r.metrics and r.speedup
    )
    if not points:
        return AcceptanceVsSpeedup((), None, None)
    return AcceptanceVsSpeedup(
        points,
        max(points, key=lambda p: p.acceptance_length).number,
        max(points, key=lambda p: p.speedup).number,
    )


def acceptance_vs_speedup_figure(info: AcceptanceVsSpeedup) -> go.Figure:
    """Draw the speed-ups with their intervals and name the leader of each axis."""
    if not info.points:
        return message("No trial has a speed-up.")
    chart = figure("Acceptance length (tokens per step)", "Speed-up over no speculation")
    for batch, colour in batch_colours(p.batch_size for p in info.points).items():
        series = [p for p in info.points if p.batch_size == batch]
        chart.add_scatter(
            x=[p.acceptance_length for p in series],
            y=[p.speedup for p in series],
            error_y={
                "array": [p.high - p.speedup for p in series],
                "arrayminus": [p.speedup - p.low for p in series],
                "thickness": 1,
                "width": 3,
            },
            mode="markers",
            name=f"batch {batch}",
            marker={"size": 10, "color": colour},
            customdata=[[p.number, p.name, p.low, p.high] for p in series],
            hovertemplate=(
                "trial %{customdata[0]}: %{customdata[1]}<br>%{y:.2f}x "
                "[%{customdata[2]:.2f}, %{customdata[3]:.2f}]"
                "<br>acceptance length %{x:.2f}<extra></extra>"
            ),
        )
    chart.add_hline(y=1, line={"color": GREY, "dash": "dash", "width": 1.5})
    for point in info.points:
        if point.number == info.highest_speedup:
            _ring(chart, point, "highest speed-up", "circle-open")
        if point.number == info.longest_acceptance:
            _ring(chart, point, "longest acceptance", "square-open")
    chart.update_yaxes(ticksuffix="x")
    return chart


def _ring(chart: go.Figure, point: Point, name: str, symbol: str) -> None:
    chart.add_scatter(
        x=[point.acceptance_length],
        y=[point.speedup],
        mode="markers",
        name=f"{name}: trial {point.number}",
        marker={"size": 20, "symbol": symbol, "color": INK, "line": {"width": 2}},
        hoverinfo="skip",
    )
