"""Export: leave with a config file that `tuner run` and your server's scripts can read."""

from __future__ import annotations

import streamlit as st

from dashboard.data.trial_facts import evidence
from dashboard.data.trial_rows import note_of
from dashboard.panels.chooser import page_header, trial_of_url, trial_select
from dashboard.panels.fact_table import fact_table
from dashboard.panels.text_check import text_check
from dashboard.panels.verdict import judge_once
from dashboard.panels.watch_link import watch_link
from profiles.records import TrialResult
from profiles.store import RunFolder
from tuner.export import EXPORTERS, render

MIME = {"yaml": "application/yaml", "json": "application/json"}


def standing(chosen: TrialResult, best: int | None) -> None:
    """Say whether the chosen trial is the best one."""
    if chosen.number == best:
        st.success(f"Trial {best} is the best of this run.", icon=":material/trophy:")
    elif chosen.violations:
        st.warning(f"Trial {chosen.number} cannot be the best: {note_of(chosen)}.")
    elif best is None:
        st.warning("No trial of this run is the best: none met the limits and the objective.")
    else:
        st.warning(f"Trial {chosen.number} is not the best of this run; trial {best} is.")


def files(run: RunFolder, result: TrialResult) -> None:
    """Draw the file in every format, its download and the command that takes it back."""
    st.subheader("File", anchor=False)
    for name, tab in zip(EXPORTERS, st.tabs([name.upper() for name in EXPORTERS]), strict=True):
        file_name, text = render(run, result.number, name)
        with tab:
            st.download_button(
                f"Download {file_name}",
                text,
                file_name=file_name,
                mime=MIME[name],
                on_click="ignore",
                icon=":material/download:",
                type="primary",
                key=f"download_{name}",
            )
            st.markdown("Measure it again on any host:")
            st.code(f"./run.sh tuner run {file_name}", language="bash")
            st.code(text, language=name, height=420)


def page() -> None:
    """Draw the page."""
    run = page_header("Export")
    results = run.trials()
    measured = [result for result in results if result.metrics]
    if not measured:
        st.info("No trial of this run has a measurement yet, so there is nothing to export.")
        watch_link(run.run_id, "See why")
        return
    best = judge_once(run, results).best
    chosen = trial_of_url(measured, measured[0].number if best is None else best)
    trial_select("Config", measured, chosen)
    standing(chosen, best)
    text_check(chosen)
    left, right = st.columns([3, 2], gap="large")
    with left:
        files(run, chosen)
    with right:
        st.subheader("Evidence", anchor=False)
        fact_table(evidence(run.record(), chosen), alt="What the config rests on")


page()
