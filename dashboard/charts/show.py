"""Put a Plotly figure on the page."""

from __future__ import annotations

import plotly.graph_objects as go
import streamlit as st

CONFIG = {"displaylogo": False, "showSendToCloud": False}


def show(figure: go.Figure, key: str, alt: str) -> None:
    """Draw `figure`; `alt` describes it to a screen reader."""
    st.plotly_chart(figure, key=key, config=CONFIG, alt=alt)
