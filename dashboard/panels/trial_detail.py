"""Everything that one trial measured."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboard.charts.category_acceptance import (
    category_acceptance_figure,
    category_acceptance_info,
)
from dashboard.charts.position_acceptance import (
    position_acceptance_figure,
    position_acceptance_info,
)
from dashboard.charts.show import show
from dashboard.data.trial_facts import facts, latencies
from dashboard.panels.fact_table import fact_table
from dashboard.panels.findings import show_findings
from dashboard.panels.text_check import text_check
from profiles.records import ServeMetrics, TrialResult
from profiles.store import RunFolder


def trial_detail(run: RunFolder, result: TrialResult) -> None:
    """Draw the detail, or why there is none."""
    if result.error:
        st.error(f"Nothing was measured: {result.error}")
    for violation in result.violations:
        st.warning(violation)
    show_findings(run, result.number)
    if result.metrics is None:
        return
    text_check(result)
    _acceptance(result.metrics)
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Latency (ms)**")
        st.dataframe(
            pd.DataFrame(latencies(result.metrics)),
            hide_index=True,
            column_config={
                name: st.column_config.NumberColumn(format="%.1f")
                for name in ("p50", "p95", "p99", "mean")
            },
            alt="Latency percentiles",
        )
    with right:
        st.markdown("**Measured**")
        fact_table(facts(result), alt="What the trial measured")


def _acceptance(metrics: ServeMetrics) -> None:
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Acceptance by drafted position**")
        show(
            position_acceptance_figure(position_acceptance_info(metrics)),
            key="position_acceptance",
            alt="Share accepted at each drafted position",
        )
    with right:
        st.markdown("**Acceptance length by category of prompt**")
        show(
            category_acceptance_figure(category_acceptance_info(metrics)),
            key="category_acceptance",
            alt="Acceptance length of each category",
        )
