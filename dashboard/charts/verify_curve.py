"""How long verify took for trees of other sizes, as trials of the run measured it."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.charts.style import GREY, PALETTE, figure, message
from profiles.roofline import Roofline


@dataclass(frozen=True)
class VerifyTimes:
    """Median verify time by nodes per request; `free_*` is None where nothing bounds it."""

    trials: tuple[int, ...]
    nodes: tuple[float, ...]
    verify_ms: tuple[float, ...]
    own_nodes: float
    free_until_measured: float | None
    free_until_limits: float


def verify_curve_info(found: Roofline) -> VerifyTimes:
    """Collect the points by nodes."""
    return VerifyTimes(
        trials=tuple(point.trial for point in found.measured),
        nodes=tuple(point.tree_nodes for point in found.measured),
        verify_ms=tuple(point.verify_ms for point in found.measured),
        own_nodes=found.tree_nodes,
        free_until_measured=found.free_until_nodes_measured,
        free_until_limits=found.free_until_nodes_by_limits,
    )


def verify_curve_figure(info: VerifyTimes) -> go.Figure:
    """Points of the run, and lines where further nodes stop being free."""
    if not info.nodes:
        return message("No verify times were measured.")
    chart = figure("Tree nodes per request, root included", "Verify time, median (ms)")
    chart.add_scatter(
        x=info.nodes,
        y=info.verify_ms,
        mode="lines+markers",
        line={"color": PALETTE[2], "width": 1.5},
        marker={"size": 9},
        customdata=info.trials,
        hovertemplate="trial %{customdata}: %{x:.1f} nodes, %{y:.2f} ms<extra></extra>",
        showlegend=False,
    )
    chart.add_vline(
        x=info.own_nodes,
        line={"color": PALETTE[5], "width": 1.5},
        annotation_text="this trial",
    )
    if info.free_until_measured is not None:
        chart.add_vline(
            x=info.free_until_measured,
            line={"color": GREY, "dash": "dash", "width": 1.5},
            annotation_text="free until here",
            annotation_position="bottom right",
        )
    chart.update_yaxes(rangemode="tozero")
    chart.update_xaxes(rangemode="tozero")
    return chart
