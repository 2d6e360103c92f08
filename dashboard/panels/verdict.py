"""The verdict of a run, first on the page."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.data.judged import OBJECTIVES, judged
from profiles.records import TrialResult
from profiles.status import UNFINISHED
from profiles.store import RunFolder
from tuner.verdict import Verdict


def show_verdict(run: RunFolder, results: Sequence[TrialResult]) -> Verdict:
    """Draw the sentence with what it rests on, and return it."""
    verdict = judge_once(run, results)
    with st.container(border=True):
        st.markdown(f"#### {verdict.verdict}")
        rest = (
            f"Objective: {OBJECTIVES[verdict.objective]}. Configs finished: {verdict.finished}; "
            f"measured and within the limits: {verdict.feasible}."
        )
        if run.observed_state() in UNFINISHED:
            rest += " The run still goes on: reload the page for newer trials."
        if len(verdict.by_batch) > 1:
            st.markdown("\n".join(f"- {batch.words}" for batch in verdict.by_batch))
        st.caption(rest)
    return verdict


def judge_once(run: RunFolder, results: Sequence[TrialResult]) -> Verdict:
    """Judge, unless the same trials were judged before; the bootstrap takes a moment."""
    seen = tuple((result.number, result.state.value) for result in results)
    return _judge(str(run.path), seen, run, results)


@st.cache_data(show_spinner=False, max_entries=32)
def _judge(
    path: str,
    seen: tuple[tuple[int, str], ...],
    _run: RunFolder,
    _results: Sequence[TrialResult],
) -> Verdict:
    return judged(_run, _results)
