"""Acceptance length by the category of the prompt."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.charts.style import GREY, PALETTE, figure
from profiles.records import ServeMetrics


@dataclass(frozen=True)
class CategoryAcceptance:
    """Acceptance length by category, shortest first, and over all."""

    categories: tuple[str, ...]
    lengths: tuple[float, ...]
    overall: float


def category_acceptance_info(metrics: ServeMetrics) -> CategoryAcceptance:
    """Collect one trial's categories."""
    ordered = sorted(metrics.acceptance_length_by_category.items(), key=lambda pair: pair[1])
    return CategoryAcceptance(
        tuple(name for name, _ in ordered),
        tuple(length for _, length in ordered),
        metrics.acceptance_length,
    )


def category_acceptance_figure(info: CategoryAcceptance) -> go.Figure:
    """One bar a category, and a line at the mean over all steps."""
    chart = figure("Acceptance length (tokens per step)", "", height=280)
    chart.add_bar(
        x=list(info.lengths),
        y=list(info.categories),
        orientation="h",
        marker={"color": PALETTE[2]},
        hovertemplate="%{y}: %{x:.2f} tokens per step<extra></extra>",
    )
    chart.add_vline(
        x=info.overall,
        line={"color": GREY, "dash": "dash", "width": 1.5},
        annotation_text=f"all {info.overall:.2f}",
        annotation_position="top",
    )
    chart.update_yaxes(type="category")
    chart.update_layout(bargap=0.35)
    return chart
