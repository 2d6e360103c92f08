"""Go to the page of one trial."""

from __future__ import annotations

from typing import NoReturn

import streamlit as st

_PAGE = "views/trial.py"


def open_trial(run_id: str, number: int) -> NoReturn:
    """Go there now."""
    st.switch_page(_PAGE, query_params={"run": run_id, "trial": str(number)})


def trial_link(run_id: str, number: int) -> None:
    """Draw a link to it."""
    st.page_link(
        _PAGE,
        label=f"Open trial {number}: timeline, steps, kernels and profiles",
        query_params={"run": run_id, "trial": str(number)},
        icon=":material/science:",
    )
