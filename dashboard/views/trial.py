"""Trial: everything about one trial, from its headline to single kernels."""

from __future__ import annotations

import streamlit as st

from dashboard.panels.capture_view import capture_view, choose_capture
from dashboard.panels.chooser import page_header, trial_of_url, trial_select
from dashboard.panels.import_form import import_form
from dashboard.panels.kpis import kpis
from dashboard.panels.telemetry_timeline import telemetry_timeline
from dashboard.panels.trial_detail import trial_detail
from profiles.records import TrialResult
from profiles.store import RunFolder


def overview(run: RunFolder, result: TrialResult) -> None:
    """Headline, findings and config."""
    if result.metrics:
        kpis(result)
    trial_detail(run, result)


def timeline(run: RunFolder, result: TrialResult) -> None:
    """The telemetry of the trial."""
    telemetry_timeline(run.trial(result.number))


def profiles(run: RunFolder, _result: TrialResult) -> None:
    """Import Nsight and PyTorch profiles, and look at one."""
    import_form(run)
    capture = choose_capture(run)
    if capture is not None:
        capture_view(capture)


SECTIONS = {"Overview": overview, "Timeline": timeline, "Profiles": profiles}


def page() -> None:
    """Draw the page."""
    run = page_header("Trial")
    results = run.trials()
    if not results:
        st.info("No trial of this run has a result yet.")
        st.page_link(
            "views/live.py",
            label="Watch it",
            query_params={"run": run.run_id},
            icon=":material/monitoring:",
        )
        return
    chosen = trial_of_url(results, results[0].number)
    trial_select("Trial", results, chosen)
    tabs = st.tabs(list(SECTIONS), key="section", bind="query-params")
    for tab, draw in zip(tabs, SECTIONS.values(), strict=True):
        if tab.open:
            with tab:
                draw(run, chosen)


page()
