"""Trial: everything about one trial, from its headline to single kernels."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.data.trial_facts import config_facts
from dashboard.panels.capture_view import capture_view, choose_capture
from dashboard.panels.captured_phases import captured_phases
from dashboard.panels.chooser import page_header, trial_of_url, trial_select
from dashboard.panels.fact_table import fact_table
from dashboard.panels.import_form import import_form
from dashboard.panels.kpis import kpis
from dashboard.panels.side_by_side import side_by_side
from dashboard.panels.steps import steps_of
from dashboard.panels.telemetry_timeline import telemetry_timeline
from dashboard.panels.trial_detail import trial_detail
from dashboard.panels.watch_link import watch_link
from profiles.records import TrialResult
from profiles.store import RunFolder
from profiles.trial_capture import read_trial_capture

Results = Sequence[TrialResult]


def overview(run: RunFolder, result: TrialResult, _results: Results) -> None:
    """Headline, findings, config and what was measured."""
    if result.metrics:
        kpis(result)
    trial_detail(run, result)
    st.markdown("**Config**")
    fact_table(config_facts(result), alt="What ran")


def timeline(run: RunFolder, result: TrialResult, _results: Results) -> None:
    """The telemetry of the trial."""
    telemetry_timeline(run.trial(result.number))


def steps(run: RunFolder, result: TrialResult, results: Results) -> None:
    """Anatomy of a step, efficiency and roofline."""
    steps_of(run.trial(result.number), result, results)


def profiles(run: RunFolder, result: TrialResult, _results: Results) -> None:
    """Import Nsight and PyTorch profiles, and look at one."""
    own = read_trial_capture(run.trial(result.number))
    if own is not None:
        captured_phases(own)
    import_form(run)
    capture = choose_capture(run, own.import_id if own else None)
    if capture is not None:
        capture_view(capture)


SECTIONS = {
    "Overview": overview,
    "Timeline": timeline,
    "Steps": steps,
    "Profiles": profiles,
    "Side by side": side_by_side,
}


def page() -> None:
    """Draw the page."""
    run = page_header("Trial")
    results = run.trials()
    if not results:
        st.info("No trial of this run has a result yet.")
        watch_link(run.run_id)
        return
    chosen = trial_of_url(results, results[-1].number)
    trial_select("Trial", results, chosen)
    if chosen.profiler:
        st.warning(
            f"This trial ran under {chosen.profiler}, which slows it down: "
            "none of its times is a result."
        )
    tabs = st.tabs(list(SECTIONS), key="section", bind="query-params")
    for tab, draw in zip(tabs, SECTIONS.values(), strict=True):
        if tab.open:
            with tab:
                draw(run, chosen, results)


page()
