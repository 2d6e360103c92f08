"""Throughput against TPOT p95: the trade between all users and each one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.charts.style import GREY, INK, batch_colours, figure, message
from profiles.records import TrialResult, TrialState


@dataclass(frozen=True)
class Point:
    """One measured trial."""

    number: int
    batch_size: int
    tpot_ms_p95: float
    tokens_per_s: float
    feasible: bool
    baseline: bool
    best: bool
    name: str


@dataclass(frozen=True)
class ThroughputVsLatency:
    """The data of the chart. `left_out` trials have no TPOT: every request gave one token."""

    points: tuple[Point, ...]
    left_out: int


def throughput_vs_latency_info(
    results: Sequence[TrialResult], best: int | None
) -> ThroughputVsLatency:
    """Collect every trial that measured both axes."""
    points = []
    measured = [result for result in results if result.metrics]
    for result in measured:
        metrics, config = result.metrics, result.config
        if metrics is None or metrics.tpot_ms is None:
            continue
        points.append(
            Point(
                number=result.number,
                batch_size=config.batch_size,
                tpot_ms_p95=metrics.tpot_ms.p95,
                tokens_per_s=metrics.output_tokens_per_s,
                feasible=result.state is TrialState.COMPLETE,
                baseline=config.draft_len == 0,
                best=result.number == best,
                name=config.describe(),
            )
        )
    return ThroughputVsLatency(tuple(points), len(measured) - len(points))


def throughput_vs_latency_figure(info: ThroughputVsLatency) -> go.Figure:
    """Colour by batch size; grey breaks a limit, diamonds do not speculate, a ring is the best."""
    if not info.points:
        return message("No trial measured both throughput and TPOT.")
    chart = figure("TPOT p95 (ms), lower is better", "Output tokens/s, higher is better")
    for batch, colour in batch_colours(p.batch_size for p in info.points).items():
        mine = [p for p in info.points if p.batch_size == batch and p.feasible]
        _add(chart, [p for p in mine if not p.baseline], f"batch {batch}", colour, "circle")
        _add(
            chart,
            [p for p in mine if p.baseline],
            f"batch {batch}, no speculation",
            colour,
            "diamond-open",
        )
    _add(chart, [p for p in info.points if not p.feasible], "breaks a limit", GREY, "circle")
    best = [p for p in info.points if p.best]
    chart.add_scatter(
        x=[p.tpot_ms_p95 for p in best],
        y=[p.tokens_per_s for p in best],
        mode="markers",
        name="best",
        marker={"size": 20, "symbol": "circle-open", "color": INK, "line": {"width": 2}},
        hoverinfo="skip",
        showlegend=bool(best),
    )
    return chart


def _add(chart: go.Figure, points: list[Point], name: str, colour: str, symbol: str) -> None:
    if not points:
        return
    chart.add_scatter(
        x=[p.tpot_ms_p95 for p in points],
        y=[p.tokens_per_s for p in points],
        mode="markers",
        name=name,
        marker={"size": 11, "color": colour, "symbol": symbol},
        customdata=[[p.number, p.name] for p in points],
        hovertemplate=(
            "trial %{customdata[0]}: %{customdata[1]}<br>%{y:.1f} tok/s"
            "<br>TPOT p95 %{x:.1f} ms<extra></extra>"
        ),
    )
