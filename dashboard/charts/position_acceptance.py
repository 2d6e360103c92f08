"""How often the token drafted at each position is accepted, given the ones before it were."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.charts.style import PALETTE, figure, message
from profiles.records import ServeMetrics


@dataclass(frozen=True)
class PositionAcceptance:
    """Percent by drafted position, from 1; None where no draft got that far."""

    positions: tuple[int, ...]
    percents: tuple[float | None, ...]


def position_acceptance_info(metrics: ServeMetrics) -> PositionAcceptance:
    """Collect one trial's positions."""
    shares = metrics.position_acceptance
    return PositionAcceptance(
        tuple(range(1, len(shares) + 1)),
        tuple(None if share is None else 100 * share for share in shares),
    )


def position_acceptance_figure(info: PositionAcceptance) -> go.Figure:
    """One bar a position."""
    if not info.positions:
        return message("No drafts: this trial does not speculate.")
    chart = figure("Drafted position", "Accepted, given those before (%)", height=280)
    chart.add_bar(
        x=list(info.positions),
        y=list(info.percents),
        marker={"color": PALETTE[0]},
        hovertemplate="position %{x}: %{y:.1f} %<extra></extra>",
    )
    chart.update_xaxes(dtick=1)
    chart.update_yaxes(range=[0, 100])
    chart.update_layout(bargap=0.4)
    return chart
