"""How a wrong value is shown: which field, which value, how to mend it."""

from __future__ import annotations

import streamlit as st

from tuner.errors import BadInput


def show_bad_input(error: BadInput) -> None:
    """Draw `error`."""
    st.error(f"**{error.field}** = `{error.value!r}`  \n{error.remedy}", icon=":material/error:")
