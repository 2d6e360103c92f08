"""Put a Plotly figure on the page."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from dashboard.charts.style import dressed

CONFIG = {"displaylogo": False, "showSendToCloud": False}


def show(figure: go.Figure, key: str, alt: str) -> None:
    """Draw `figure`; `alt` describes it to a screen reader."""
    st.plotly_chart(DrawnOnce(figure), key=key, config=CONFIG, alt=alt, theme=None)


class DrawnOnce(go.Figure):
    """A figure in the page's look, in a form that the browser draws once.

    NOTE Streamlit hands Plotly a copy of every figure as soon as it is drawn. Plotly takes the copy
    for a change, and draws it all again, where there is a template, as in Streamlit's own theme, a
    typed array, or a list without a `datarevision`. A figure that changes is another element to
    Streamlit, so the data of one never change. Plotly would check and copy lists one by one here.
    """

    def __init__(self, figure: go.Figure) -> None:
        super().__init__()
        spec = figure.to_dict()
        layout = {**dressed(spec["layout"]), "datarevision": 1}
        self._spec = {"data": [_with_lists(trace) for trace in spec["data"]], "layout": layout}

    def to_dict(self) -> dict[str, Any]:
        """What goes to the browser."""
        return self._spec


def _with_lists(value: Any) -> Any:
    """Plotly's typed arrays as lists, at any depth, with None for NaN."""
    if not isinstance(value, dict):
        return value
    if value.keys() >= {"dtype", "bdata"}:
        numbers = np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"])
        if "shape" in value:
            numbers = numbers.reshape([int(length) for length in value["shape"].split(",")])
        return np.where(np.isnan(numbers), np.array(None), numbers).tolist()
    return {name: _with_lists(each) for name, each in value.items()}
