"""Output tokens/s of every trial in the order measured, with the baselines as lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.charts.style import batch_colours, figure, message
from dashboard.charts.trial_axis import MOST_TICKS
from profiles.records import TrialResult


@dataclass(frozen=True)
class Point:
    """One trial; without a measurement its value is a gap."""

    number: int
    batch_size: int
    tokens_per_s: float | None
    name: str


@dataclass(frozen=True)
class Baseline:
    """No speculation at one batch size, precision and KV cache."""

    name: str
    batch_size: int
    tokens_per_s: float


@dataclass(frozen=True)
class ThroughputByTrial:
    """The data of the chart."""

    points: tuple[Point, ...]
    baselines: tuple[Baseline, ...]


def throughput_by_trial_info(results: Sequence[TrialResult]) -> ThroughputByTrial:
    """Collect the trials by number, baselines apart."""
    points, baselines = [], []
    for result in results:
        config = result.config
        value = result.metrics.output_tokens_per_s if result.metrics else None
        if config.draft_len == 0 and value is not None:
            baselines.append(Baseline(config.describe(), config.batch_size, value))
        points.append(Point(result.number, config.batch_size, value, config.describe()))
    return ThroughputByTrial(tuple(points), tuple(baselines))


def throughput_by_trial_figure(info: ThroughputByTrial) -> go.Figure:
    """Draw one series a batch size."""
    if not any(point.tokens_per_s is not None for point in info.points):
        return message("No trial has a measurement.")
    colours = batch_colours(point.batch_size for point in info.points)
    chart = figure("Trial", "Output tokens/s", height=340)
    for batch, colour in colours.items():
        series = [point for point in info.points if point.batch_size == batch]
        chart.add_scatter(
            x=[str(point.number) for point in series],
            y=[point.tokens_per_s for point in series],
            mode="markers",
            name=f"batch {batch}",
            marker={"color": colour, "size": 10},
            customdata=[point.name for point in series],
            hovertemplate="trial %{x}: %{customdata}<br>%{y:.1f} tok/s<extra></extra>",
        )
    for line in info.baselines:
        chart.add_hline(
            y=line.tokens_per_s,
            line={"color": colours[line.batch_size], "dash": "dash", "width": 1.5},
            annotation_text=line.name,
            annotation_position="top right",
            annotation_font={"color": colours[line.batch_size], "size": 12},
        )
    numbers = [str(point.number) for point in info.points]
    chart.update_xaxes(type="category", categoryorder="array", categoryarray=numbers)
    chart.update_xaxes(nticks=MOST_TICKS, range=[-0.5, 1.15 * len(numbers)])  # room for the names
    chart.update_yaxes(rangemode="tozero")
    return chart
