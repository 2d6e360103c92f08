"""Panels above each other on one axis of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dashboard.charts.style import PALETTE
from dashboard.data.coverage import Floats

_FILLED = [[0.0, "rgba(0,114,178,0)"], [1e-6, "rgba(0,114,178,0.3)"], [1.0, PALETTE[0]]]
_GAP_PX = 22
_LEGEND_PX, _TIME_AXIS_PX = 34, 48
TITLE_PX = 28
_TICKS_PX, _LETTER_PX = 70, 6.2  # left of a panel, its title included; of a letter of a name


@dataclass(frozen=True)
class Panel:
    """Traces over a vertical axis of their own; `axis` holds Plotly's settings of it."""

    height_px: int
    axis: Mapping[str, Any]
    traces: Sequence[Mapping[str, Any]] = field(default_factory=list)
    left_px: float = _TICKS_PX


def lanes(edges: Floats, percents: Mapping[str, Floats], unit: str, height_px: int) -> Panel:
    """One lane a name, the darker the more of the time between two edges is filled; NaN is white.

    Whatever is filled at all can be seen, however short it is.
    """
    trace = {
        "type": "heatmap",
        "x": edges,
        "y": list(percents),
        "z": np.vstack(list(percents.values())),
        "zmin": 0,
        "zmax": 100,
        "ygap": 3,
        "colorscale": _FILLED,
        "showscale": False,
        "hovertemplate": f"%{{y}}: %{{z:.1f}} % of the time at %{{x:.3f}} {unit}<extra></extra>",
    }
    left_px = 16 + _LETTER_PX * max(map(len, percents))
    return Panel(height_px, {"autorange": "reversed"}, [trace], left_px)


def stacked(
    panels: Sequence[Panel], time_title: str, time_range: tuple[float, float], **layout: Any
) -> go.Figure:
    """Draw the panels, first on top.

    NOTE The figure is made in one go, has one axis of time and margins of a known size: Plotly
    takes several times longer to add traces one by one, to draw an axis below each panel, and to
    measure its labels and draw again.
    """
    height = sum(panel.height_px for panel in panels) + _GAP_PX * (len(panels) - 1)
    axes: dict[str, Any] = {}
    traces = []
    top = height
    for number, panel in enumerate(panels, 1):
        name = "y" if number == 1 else f"y{number}"
        domain = [max(0.0, (top - panel.height_px) / height), top / height]
        top -= panel.height_px + _GAP_PX
        axes[name.replace("y", "yaxis")] = {"domain": domain, "automargin": False, **panel.axis}
        traces += [{**trace, "xaxis": "x", "yaxis": name} for trace in panel.traces]
    time_axis = {
        "anchor": name,
        "range": list(time_range),
        "title": {"text": time_title},
        "automargin": False,
    }
    left = max(panel.left_px for panel in panels)
    return go.Figure(
        traces,
        {
            "height": height + _LEGEND_PX + _TIME_AXIS_PX,
            "margin": {"l": left, "r": 10, "t": _LEGEND_PX, "b": _TIME_AXIS_PX},
            "legend": {
                "orientation": "h", "yanchor": "bottom", "y": 1, "x": 0, "traceorder": "normal",
            },
            "xaxis": time_axis,
            **axes,
            **layout,
        },
    )  # fmt: skip
