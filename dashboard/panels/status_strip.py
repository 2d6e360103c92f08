"""The state of a run in one strip, with its Stop and Resume buttons."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.data.live_state import LiveState, live_state, utc_now
from dashboard.formats import MISSING, duration
from profiles.records import TrialResult
from profiles.store import RunFolder
from tuner.errors import BadInput
from tuner.launch import resume_sweep, stop_sweep

LAST_LINES = 15


def state_now(run: RunFolder, results: Sequence[TrialResult]) -> LiveState:
    """Read the state of `run`."""
    return live_state(run, results, utc_now())


def status_strip(run: RunFolder, was_unfinished: bool) -> None:
    """Draw the strip. When the run has just finished, redraws the page, which ends its timers."""
    state = state_now(run, run.trials())
    with st.container(border=True):
        tiles = st.columns([2, 1, 1, 1, 1.2], vertical_alignment="center")
        tiles[0].metric("State", state.words)
        tiles[1].metric("Trials finished", _trials(state))
        tiles[2].metric("Since the start", duration(state.elapsed_s))
        if state.unfinished:
            left = MISSING if state.left_s is None else f"about {duration(state.left_s)}"
            tiles[3].metric("Still to go", left)
        with tiles[4]:
            _buttons(run, state)
        st.progress(_fraction(state), text=state.message or " ")
    _log(run, state)
    if was_unfinished and not state.unfinished:
        st.rerun()


def _trials(state: LiveState) -> str:
    return f"{state.done} of {state.planned}" if state.planned else f"{state.done}"


def _fraction(state: LiveState) -> float:
    return min(1.0, state.done / state.planned) if state.planned else 0.0


def _buttons(run: RunFolder, state: LiveState) -> None:
    if state.unfinished:
        if st.button(
            "Stop sweep",
            icon=":material/stop:",
            disabled=not state.can_stop,
            width="stretch",
            help="Stops after the trial in progress. What is finished stays; resuming goes on.",
        ):
            stop_sweep(run.run_id)
            st.rerun()
    elif state.state == "done":
        st.page_link(
            "views/results.py",
            label="See the results",
            icon=":material/insights:",
            query_params={"run": run.run_id},
        )
    elif state.can_resume and st.button(
        "Resume sweep", icon=":material/play_arrow:", type="primary", width="stretch"
    ):
        _resume(run.run_id)


def _resume(run_id: str) -> None:
    try:
        resume_sweep(run_id)
    except BadInput as error:
        st.error(str(error))
    else:
        st.rerun()


def _log(run: RunFolder, state: LiveState) -> None:
    """Show the end of the coordinator's output when it broke."""
    if state.state not in ("failed", "never started"):
        return
    st.error("The sweep ended with an error. Its last words are below; resuming tries again.")
    path = run.path / "coordinator.log"
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    st.code("\n".join(lines[-LAST_LINES:]) or "(it wrote nothing)", language=None)
