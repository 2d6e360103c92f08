"""Results: which config is best, by how much, and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.charts.acceptance_vs_speedup import (
    acceptance_vs_speedup_figure,
    acceptance_vs_speedup_info,
)
from dashboard.charts.memory_split import memory_split_figure, memory_split_info
from dashboard.charts.show import show
from dashboard.charts.throughput_vs_latency import (
    throughput_vs_latency_figure,
    throughput_vs_latency_info,
)
from dashboard.charts.time_share import time_share_figure, time_share_info
from dashboard.data.trial_rows import finished_rows
from dashboard.panels.chooser import page_header, trial_of_url, trial_select
from dashboard.panels.kpis import kpis
from dashboard.panels.open_trial import trial_link
from dashboard.panels.text_check import text_check
from dashboard.panels.trial_detail import trial_detail
from dashboard.panels.trial_table import selectable_trial_table
from dashboard.panels.verdict import show_verdict
from dashboard.panels.watch_link import watch_link
from profiles.records import TrialResult
from profiles.store import RunFolder


def charts(results: Sequence[TrialResult], best: int | None) -> None:
    """Draw the comparison of the trials."""
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("Throughput and latency", anchor=False)
        show(
            throughput_vs_latency_figure(throughput_vs_latency_info(results, best)),
            key="throughput_vs_latency",
            alt="Output tokens per second against TPOT p95",
        )
    with right:
        st.subheader("Acceptance and speed-up", anchor=False)
        show(
            acceptance_vs_speedup_figure(acceptance_vs_speedup_info(results)),
            key="acceptance_vs_speedup",
            alt="Speed-up against acceptance length",
        )
    st.subheader("Where the time goes", anchor=False)
    show(
        time_share_figure(time_share_info(results)),
        key="time_share",
        alt="Share of step time in draft, verify, accept and host",
    )
    st.subheader("What the memory holds", anchor=False)
    memory = memory_split_info(results)
    show(memory_split_figure(memory), key="memory_split", alt="Memory by use")
    for reason in memory.reasons:
        st.caption(f"Not measured: {reason}")


def detail(run: RunFolder, results: Sequence[TrialResult], best: int | None) -> None:
    """Draw the table and the trial chosen from it."""
    st.subheader("Trials", anchor=False)
    chosen = trial_of_url(results, results[0].number if best is None else best)

    def choose(number: int) -> None:
        st.query_params["trial"] = str(number)

    selectable_trial_table(
        finished_rows(results),
        chosen.number,
        key=f"results_{run.run_id}",
        on_choose=choose,
    )
    st.subheader(f"Trial {chosen.number}", anchor=False)
    trial_select("Shown in detail; a click on a row above chooses too", results, chosen)
    trial_link(run.run_id, chosen.number)
    trial_detail(run, chosen)


def page() -> None:
    """Draw the page."""
    run = page_header("Results")
    results = run.trials()
    if not results:
        st.info("Nothing has been measured in this run yet. Results appear with its first trial.")
        watch_link(run.run_id)
        return
    verdict = show_verdict(run, results)
    by_number = {result.number: result for result in results}
    if verdict.best is not None:
        kpis(by_number[verdict.best])
        text_check(by_number[verdict.best])
    charts(results, verdict.best)
    detail(run, results, verdict.best)


page()
