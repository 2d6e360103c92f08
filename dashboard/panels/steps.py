"""Where a trial's steps spend their time, what that buys, and how close it is to the limits."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.charts.roofline import roofline_figure, roofline_info
from dashboard.charts.show import show
from dashboard.charts.step_anatomy import step_anatomy_figure, step_anatomy_info
from dashboard.charts.verify_curve import verify_curve_figure, verify_curve_info
from dashboard.data.plain_text import plain
from dashboard.data.step_facts import efficiency_facts, roofline_facts
from dashboard.panels.fact_table import fact_table
from profiles.efficiency import efficiency
from profiles.records import TrialResult
from profiles.roofline import NoRoofline, roofline
from profiles.trial_folder import TrialFolder
from profiles.verify_curve import verify_curve


def steps_of(trial: TrialFolder, result: TrialResult, results: Sequence[TrialResult]) -> None:
    """Draw anatomy, efficiency and roofline; `results` are all trials of the run."""
    if result.metrics is None:
        st.info("Nothing was measured in this trial, so there are no steps to show.")
        return
    siblings = [other for other in results if other.number != result.number]
    st.markdown("**Anatomy of a step**")
    _anatomy(result)
    st.markdown("**Efficiency**")
    _efficiency(trial, result, siblings)
    st.markdown("**Roofline of the verify pass**")
    _roofline(trial, result, siblings)


def _anatomy(result: TrialResult) -> None:
    servings = {"this config": result.anatomy, "no speculation": result.baseline_anatomy}
    show(
        step_anatomy_figure(step_anatomy_info(servings)),
        key="step_anatomy",
        alt="Mean time of a step by phase, beside that of the baseline",
    )
    if result.anatomy:
        st.caption(
            f"{result.anatomy.steps:,} steps in {result.anatomy.wall_ms / 1000:,.1f} s of wall "
            f"time; phases and gaps account for {result.anatomy.accounted_share:.1%} of it."
        )


def _efficiency(trial: TrialFolder, result: TrialResult, siblings: Sequence[TrialResult]) -> None:
    assert result.metrics is not None
    curve = verify_curve(result, siblings)
    try:
        found = efficiency(trial.steps(), result.metrics, result.energy, curve)
    except ValueError as error:
        st.warning(f"Not known: {plain(str(error))}")
        return
    fact_table(efficiency_facts(found), alt="What the verified nodes bought")


def _roofline(trial: TrialFolder, result: TrialResult, siblings: Sequence[TrialResult]) -> None:
    found = roofline(result, trial.steps(), trial.requests(), siblings)
    if isinstance(found, NoRoofline):
        st.caption(f"No roofline: {plain(found.reason)}")
        return
    left, right = st.columns(2, gap="large")
    with left:
        show(
            roofline_figure(roofline_info(found)),
            key="roofline",
            alt="Achieved FLOP/s of verify under the device's limits",
        )
    with right:
        show(
            verify_curve_figure(verify_curve_info(found)),
            key="verify_curve",
            alt="Verify time by tree nodes, over trials of the run",
        )
    if found.note:
        st.warning(found.note)
    fact_table(roofline_facts(found), alt="The verify pass against the device's limits")
