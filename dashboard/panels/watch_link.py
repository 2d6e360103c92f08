"""Go to where a run is watched."""

from __future__ import annotations

import streamlit as st


def watch_link(run_id: str, label: str = "Watch it") -> None:
    """Draw a link to the Live page of a run."""
    st.page_link(
        "views/live.py",
        label=label,
        query_params={"run": run_id},
        icon=":material/monitoring:",
    )
