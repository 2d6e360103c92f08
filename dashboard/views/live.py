"""Live: what a sweep is doing now. Panels redraw by themselves until the run is finished."""

from __future__ import annotations

import streamlit as st

from dashboard.charts.show import show
from dashboard.charts.throughput_by_trial import (
    throughput_by_trial_figure,
    throughput_by_trial_info,
)
from dashboard.data.trial_rows import failures, trial_rows
from dashboard.panels.chooser import page_header
from dashboard.panels.open_trial import open_trial
from dashboard.panels.status_strip import state_now, status_strip
from dashboard.panels.telemetry_timeline import newest_telemetry
from dashboard.panels.trial_table import trial_table
from profiles.store import RunFolder

EVERY = "2s"


def trials(run: RunFolder) -> None:
    """Draw the chart and the table of the trials so far."""
    results = run.trials()
    state = state_now(run, results)
    rows = trial_rows(run, results, state.unfinished)
    if not rows:
        st.info("No trial has begun. The first ones measure no speculation, the baseline.")
        return
    show(
        throughput_by_trial_figure(throughput_by_trial_info(results)),
        key="throughput_by_trial",
        alt="Output tokens per second of every trial, baselines as lines",
    )
    opened = trial_table(rows, key=f"live_trials_{run.run_id}")
    if opened in {result.number for result in results}:
        open_trial(run.run_id, opened)
    for reason, numbers in failures(results).items():
        st.error(f"Trial {', '.join(map(str, numbers))} failed: {reason}")


def telemetry(run: RunFolder) -> None:
    """Draw the counters of the newest trial while the run goes on."""
    newest = max(run.trial_numbers(), default=None)
    if newest is None or not state_now(run, run.trials()).unfinished:
        return
    st.subheader(f"Host and GPU during trial {newest}", anchor=False)
    newest_telemetry(run.trial(newest).telemetry_dir)


def page() -> None:
    """Draw the page."""
    run = page_header("Live")
    unfinished = state_now(run, run.trials()).unfinished
    every = EVERY if unfinished else None
    st.fragment(status_strip, run_every=every)(run, unfinished)
    st.fragment(trials, run_every=every)(run)
    st.fragment(telemetry, run_every=every)(run)


page()
