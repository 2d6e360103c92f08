"""Which run and which trial a tab looks at: the URL says, the store is asked."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.data.asked import spec_of
from profiles.errors import DamagedRun, UnknownRun
from profiles.records import TrialResult
from profiles.store import RunFolder
from tuner.runs import run_store

_LAST_RUN = "last_run"


def page_header(title: str) -> RunFolder:
    """Draw the title and the run chooser, and return the run.

    Without any run, or with an unknown one in the URL, says what to do and ends the page.
    """
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    left.title(title, anchor=False)
    runs = run_store().list()
    if not runs:
        st.info("There are no runs yet. A suggested sweep is ready on the Start page.")
        st.page_link("views/start.py", label="Start a sweep", icon=":material/play_arrow:")
        st.stop()
    run = _run_of_url(runs)
    _run_select(right, runs, run)
    _warn_of_fake(run)
    return run


def _warn_of_fake(run: RunFolder) -> None:
    """Say that nothing was measured; end the page when the run cannot be read."""
    try:
        engine = spec_of(run).engine
    except DamagedRun as error:
        st.error(f"This run cannot be shown: {error}")
        st.stop()
    if engine == "fake":
        st.caption(
            ":orange-badge[fake engine] Recorded timings are played back; "
            "nothing here is a measurement."
        )


def _run_of_url(runs: Sequence[RunFolder]) -> RunFolder:
    ids = [run.run_id for run in runs]
    remembered = st.session_state.get(_LAST_RUN)
    wanted = st.query_params.get("run") or (remembered if remembered in ids else ids[0])
    try:
        run = run_store().open(wanted)
        run.record()
    except (UnknownRun, DamagedRun) as error:
        st.error(f"The run that the address asks for cannot be shown: {error}")
        st.page_link(
            "views/results.py",
            label="Open the newest run",
            query_params={"run": ids[0]},
            icon=":material/history:",
        )
        st.stop()
    st.query_params["run"] = run.run_id
    st.session_state[_LAST_RUN] = run.run_id
    return run


def _run_select(
    place: st.delta_generator.DeltaGenerator, runs: Sequence[RunFolder], run: RunFolder
) -> None:
    ids = [each.run_id for each in runs]
    # NOTE: a label must not change while it is chosen, or Streamlit takes it for a new value.
    labels = {each.run_id: _label(each) for each in runs}
    key = f"choose_run_{run.run_id}"  # follows the URL: another run is another widget

    def go() -> None:
        st.query_params.clear()
        st.query_params["run"] = st.session_state[key]

    place.selectbox(
        "Run",
        ids,
        index=ids.index(run.run_id),
        format_func=lambda run_id: labels[run_id],
        key=key,
        on_change=go,
    )


def _label(run: RunFolder) -> str:
    try:
        spec = spec_of(run)
    except DamagedRun:
        return run.run_id
    return f"{run.run_id}: {spec.engine}, {spec.model}"


def trial_of_url(results: Sequence[TrialResult], default: int) -> TrialResult:
    """Return the trial that the URL names, else trial `default`; says so when it names none."""
    by_number = {str(result.number): result for result in results}
    wanted = st.query_params.get("trial")
    if wanted is not None and wanted not in by_number:
        st.warning(
            f"The address asks for trial {wanted!r}, which this run does not have. "
            f"It has {', '.join(by_number)}. Showing trial {default}."
        )
        return by_number[str(default)]
    return by_number[wanted or str(default)]


def trial_select(label: str, results: Sequence[TrialResult], chosen: TrialResult) -> None:
    """Draw the trial chooser, which writes the URL."""
    names = {result.number: result.config.describe() for result in results}
    numbers = list(names)
    key = f"choose_trial_{st.query_params['run']}_{chosen.number}"

    def go() -> None:
        st.query_params["trial"] = str(st.session_state[key])

    st.selectbox(
        label,
        numbers,
        index=numbers.index(chosen.number),
        format_func=lambda number: f"Trial {number}: {names[number]}",
        key=key,
        on_change=go,
    )
