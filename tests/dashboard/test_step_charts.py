"""Anatomy, roofline, verify curve and efficiency: what the records say, in people's units."""

from __future__ import annotations

import numpy as np
import pytest

from dashboard.charts.roofline import NoRoof, roofline_figure, roofline_info
from dashboard.charts.step_anatomy import GAPS, step_anatomy_figure, step_anatomy_info
from dashboard.charts.verify_curve import verify_curve_figure, verify_curve_info
from dashboard.data.captured_rows import captured_frame, captured_rows
from dashboard.data.step_facts import NOT_TRIED, efficiency_facts, roofline_facts
from profiles.efficiency import NO_SMALLER_TREE, Efficiency
from profiles.nsight.phases import CapturedPhase, CapturedPhases
from profiles.records import STEP_PHASES, PhaseTime, StepAnatomy
from profiles.roofline import NoRoofline, Roofline
from profiles.verify_curve import VerifyPoint


def anatomy() -> StepAnatomy:
    times = {
        phase: PhaseTime(mean_ms=n, p50_ms=n, p95_ms=2 * n, share=n / 20)
        for n, phase in enumerate(STEP_PHASES)
    }
    gaps = PhaseTime(mean_ms=5.0, p50_ms=0.0, p95_ms=9.0, share=0.25)
    return StepAnatomy(steps=10, wall_ms=200.0, phases=times, gaps=gaps, accounted_share=1.0)


def roof(**changes: object) -> Roofline:
    """A pass at half of the memory limit: 1e12 bytes/s read, 100e12 FLOP/s computed at best."""
    fields = {
        "steps": 10,
        "sequences": 1.0,
        "tree_nodes": 9.0,
        "context_tokens": 50.0,
        "verify_ms": 2.0,
        "bytes_read": 1e9,
        "flop": 1e10,
        "intensity_flop_per_byte": 10.0,
        "ridge_flop_per_byte": 100.0,
        "achieved_bytes_per_s": 5e11,
        "achieved_flop_per_s": 5e12,
        "read_share": 0.5,
        "matmul_share": 0.05,
        "bound": "memory",
        "limit_share": 0.5,
        "free_until_nodes_by_limits": 90.0,
        "free_until_nodes_measured": 17.0,
        "costly_nodes_measured": 33.0,
        "measured": [
            VerifyPoint(trial=0, tree_nodes=1.0, verify_ms=1.9),
            VerifyPoint(trial=1, tree_nodes=9.0, verify_ms=2.0),
        ],
    }
    return Roofline(**(fields | changes))


def test_anatomy_keeps_the_order_of_a_step_and_ends_with_the_gaps():
    info = step_anatomy_info({"this config": anatomy(), "no speculation": None})
    assert list(info.parts) == ["this config"]
    parts = info.parts["this config"]
    assert [part.phase for part in parts] == [*STEP_PHASES, GAPS]
    assert (parts[3].mean_ms, parts[3].share_pct, parts[3].p95_ms) == (3, pytest.approx(15), 6)
    assert sum(part.share_pct for part in parts) == pytest.approx(100)
    chart = step_anatomy_figure(info)
    assert chart.layout.xaxis.title.text == "Mean time of a step (ms)"
    assert [trace.name for trace in chart.data] == [*STEP_PHASES, GAPS]


def test_trials_that_were_not_taken_apart_say_so():
    chart = step_anatomy_figure(step_anatomy_info({"this config": None}))
    assert "not taken apart" in chart.layout.annotations[0].text


def test_the_roof_rises_to_the_ridge_and_the_pass_is_under_it():
    info = roofline_info(roof())
    assert (info.intensity, info.achieved_tflop_per_s, info.share_pct) == (10.0, 5.0, 50.0)
    assert info.roof_tflop_per_s.max() == pytest.approx(100)
    at_pass = np.interp(10.0, info.intensities, info.roof_tflop_per_s)
    assert at_pass == pytest.approx(10.0, rel=0.01)
    chart = roofline_figure(info)
    assert (chart.layout.xaxis.type, chart.layout.yaxis.type) == ("log", "log")
    assert chart.data[1].name == "verify: 50 % of the memory limit"


def test_without_a_roofline_the_reason_stays():
    assert roofline_info(NoRoofline(reason="no limits")) == NoRoof("no limits")
    assert not roofline_figure(NoRoof("no limits")).data


def test_the_verify_curve_marks_this_trial_and_where_nodes_stop_being_free():
    info = verify_curve_info(roof())
    assert (info.nodes, info.verify_ms, info.trials) == ((1.0, 9.0), (1.9, 2.0), (0, 1))
    chart = verify_curve_figure(info)
    assert [shape.x0 for shape in chart.layout.shapes] == [9.0, 17.0]
    unbounded = verify_curve_info(roof(free_until_nodes_measured=None))
    assert len(verify_curve_figure(unbounded).layout.shapes) == 1


def test_roofline_facts_count_the_free_nodes():
    facts = dict(roofline_facts(roof()))
    assert facts["Read"] == "500.0 GB/s, 50% of the limit"
    assert facts["Free nodes more, by the limits"] == "81 per request"
    assert facts["Free nodes more, as measured"] == "8.0 per request; 33.0 nodes took longer"
    alone = dict(roofline_facts(roof(free_until_nodes_measured=None)))
    assert alone["Free nodes more, as measured"] == f"n/a ({NOT_TRIED})"


def test_efficiency_facts_give_reasons_for_what_is_missing():
    found = Efficiency(
        verified_nodes=100,
        accepted_nodes=20,
        rejected_nodes=60,
        cut_tokens=1,
        wasted_node_share=0.6,
        verified_nodes_per_committed_token=2.5,
        energy_j_per_committed_token=None,
        energy_reason="no meter",
        wasted_draft_share=0.08,
        wasted_verify_share=None,
        wasted_time_share=None,
        wasted_time_reason=NO_SMALLER_TREE,
    )
    facts = dict(efficiency_facts(found))
    assert facts["Energy per committed token"] == "n/a (no meter)"
    assert facts["Verified but rejected"] == "60 nodes, 60%"
    assert facts["Step time drafted for nothing"] == "8%"
    assert facts["Step time that bought nothing"] == f"n/a ({NO_SMALLER_TREE})"


def test_captured_phases_are_rows_in_ms_with_unknowns_unknown():
    captured = CapturedPhases(
        phases=[CapturedPhase(phase="verify", host_ns=2_000_000, kernels=3)],
        kernels=[],
        graphs="hidden",
        graphs_note="hidden",
    )
    (row,) = captured_rows(captured)
    assert (row.phase, row.host_ms, row.kernels, row.gpu_busy_ms) == ("verify", 2.0, 3, None)
    assert "host_ms" in captured_frame([])
