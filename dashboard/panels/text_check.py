"""Whether a trial gave the same greedy text as no speculation."""

from __future__ import annotations

import streamlit as st

from profiles.records import TrialResult


def text_check(result: TrialResult) -> None:
    """Draw the outcome; a difference in fp32 is an alarm, since nothing there may round apart."""
    text = result.text
    if text is None:
        if result.config.draft_len:
            st.caption("Text was not compared: sampled text differs from run to run.")
        return
    if text.all_equal:
        st.success(
            f"Same text as no speculation in all {text.requests} requests.",
            icon=":material/check_circle:",
        )
        return
    differs = (
        f"Text differs from no speculation in {text.requests - text.equal} of {text.requests} "
        f"requests (first: {text.first_difference or 'not recorded'})."
    )
    if result.precision == "fp32":
        st.error(f"{differs} In fp32 it must not: do not deploy this config.")
    else:
        st.warning(
            f"{differs} In {result.precision} near ties may round apart; read the answers before "
            "deploying."
        )
