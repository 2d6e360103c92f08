"""A list of names and values."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.data.trial_facts import Fact


def fact_table(facts: Sequence[Fact], alt: str) -> None:
    """Draw one row a fact; `alt` names the table to a screen reader."""
    st.table(dict(facts), border="horizontal", hide_header=True, alt=alt)
