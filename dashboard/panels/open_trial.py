"""Go to the page of one trial."""

from __future__ import annotations

from typing import NoReturn

import streamlit as st

_PAGE = "views/trial.py"


def open_trial(run_id: str, number: int) -> NoReturn:
    """Go there now."""
    st.switch_page(_PAGE, query_params={"run": run_id, "trial": str(number)})


def trial_link(run_id: str, number: int) -> None:
    """Draw a link to it and one straight to its timeline."""
    where = {"run": run_id, "trial": str(number)}
    with st.container(horizontal=True):
        st.page_link(
            _PAGE,
            label=f"Open trial {number}: timeline, steps, kernels and profiles",
            query_params=where,
            icon=":material/science:",
        )
        st.page_link(
            _PAGE,
            label=f"Timeline of trial {number}",
            query_params=where | {"section": "Timeline"},
            icon=":material/timeline:",
        )
