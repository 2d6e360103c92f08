"""Which prompts a sweep will serve: the first one in full, and what the source held besides."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from dashboard.panels.errors import show_bad_input
from tuner.errors import BadInput
from tuner.workloads import BUILTIN_CATEGORIES, Workload, load_workload

CHOICES = ("builtin", *(f"builtin:{category}" for category in BUILTIN_CATEGORIES))


def choose_workload() -> str:
    """Draw the workload chooser with its preview and return the choice."""
    choice = st.selectbox(
        "Workload",
        CHOICES,
        accept_new_options=True,
        help="The prompts that every trial serves. Choose the built-in prompts or one category of "
        "them, or type the path of your own file on this host (JSON Lines, ShareGPT, a trace).",
        required=True,
        key="workload",
        persist_state="session",
    )
    try:
        workload = load_workload(choice)
    except BadInput as error:
        show_bad_input(error)
    else:
        with st.expander("Preview of the workload"):
            _preview(workload)
    return choice


def _preview(workload: Workload) -> None:
    if workload.prompts:
        prompt = workload.prompts[0]
        categories = Counter(each.category for each in workload.prompts)
        counts = ", ".join(f"{name} {count}" for name, count in categories.items())
        st.caption(f"{len(workload.prompts)} prompts: {counts}. The first one:")
        for message in prompt.messages:
            st.text(f"{message.role}: {message.content}")
    else:
        st.caption(f"{len(workload.shapes)} traced requests without text.")
    if workload.reason:
        st.warning(workload.reason)
    for dropped in workload.dropped:
        st.caption(f"Left out: {dropped}")
