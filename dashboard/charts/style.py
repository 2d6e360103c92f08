"""The look that all charts share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import plotly.graph_objects as go

# Okabe and Ito: told apart with any colour vision.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
GREY = "#9AA3AD"
INK = "#1c2430"
PHASE_COLOURS = {
    "prefill": PALETTE[1],
    "draft": PALETTE[0],
    "tree": PALETTE[4],
    "verify": PALETTE[2],
    "accept": PALETTE[3],
    "host": GREY,
}
_FONT = '"Source Sans", sans-serif'
_TEXT, _GRID = "#808495", "rgba(128,132,149,0.2)"
_CLEAR = "rgba(255,255,255,0)"  # not black: the buttons over a chart take their ground from it
_AXIS = {
    "automargin": True,
    "gridcolor": _GRID,
    "tickcolor": _GRID,
    "zerolinecolor": _GRID,
    "title": {"font": {"size": 14}, "standoff": 22},
}
_X_AXIS = {**_AXIS, "showgrid": False, "zeroline": False}
_LAYOUT = {
    "colorway": PALETTE,
    "font": {"family": _FONT, "size": 12, "color": _TEXT},
    "legend": {"font": {"color": INK}},
    "paper_bgcolor": _CLEAR,
    "plot_bgcolor": _CLEAR,
    "margin": {"pad": 8},
    "hoverlabel": {"bgcolor": "white", "bordercolor": _GRID, "font": {"color": INK}},
}


def dressed(layout: Mapping[str, Any]) -> dict[str, Any]:
    """Plotly's layout with the page's fonts and lines wherever it does not name its own."""
    axes = {"xaxis", "yaxis", *(name for name in layout if name[1:5] == "axis")}
    usual = {name: _X_AXIS if name[0] == "x" else _AXIS for name in axes} | _LAYOUT
    own = {name: each for name, each in layout.items() if name != "template"}
    return _beneath(own, usual)


def _beneath(own: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """What `own` names, and what it leaves open as in `usual`, at any depth."""
    both = {**usual, **own}
    return both | {
        name: _beneath(own[name], usual[name])
        for name in own.keys() & usual.keys()
        if isinstance(usual[name], Mapping)
    }


def batch_colours(batches: Iterable[int]) -> dict[int, str]:
    """One colour a batch size, the same in every chart of a run."""
    ordered = sorted(set(batches))
    return {batch: PALETTE[i % len(PALETTE)] for i, batch in enumerate(ordered)}


def see_through(colour: str, opacity: float = 0.25) -> str:
    """A `#rrggbb` colour that lets what lies behind it be seen."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def figure(x_title: str, y_title: str, height: int = 380) -> go.Figure:
    """Return an empty figure with both axes named."""
    chart = go.Figure()
    chart.update_layout(
        height=height,
        margin={"l": 10, "r": 10, "t": 36, "b": 10},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        hovermode="closest",
        legend_traceorder="normal",
    )
    chart.update_xaxes(title=x_title, automargin=True)
    chart.update_yaxes(title=y_title, automargin=True)
    return chart


def message(text: str) -> go.Figure:
    """Return a chart that only says why it is empty."""
    chart = go.Figure()
    chart.update_layout(
        height=160,
        xaxis={"visible": False},
        yaxis={"visible": False},
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
    )
    chart.add_annotation(text=text, showarrow=False, font={"color": GREY, "size": 14})
    return chart
