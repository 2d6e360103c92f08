"""Every chart: its data is exactly what the records say, and it can be drawn from it."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects as go
import pytest

from dashboard.charts import (
    acceptance_vs_speedup,
    category_acceptance,
    memory_split,
    position_acceptance,
    throughput_by_trial,
    throughput_vs_latency,
    time_share,
)
from dashboard.charts.show import CONFIG, DrawnOnce
from dashboard.charts.trial_axis import ROOM_FOR_CONFIGS, trial_labels
from tests.dashboard.hand_made import baseline, failed, infeasible, trial

RESULTS = [
    baseline(0, batch_size=1),
    baseline(1, batch_size=4),
    trial(2, beam_width=8, draft_len=3, batch_size=4, ratio=0.9, length=3.0),
    failed(3),
    trial(4, beam_width=2, draft_len=2, batch_size=1, ratio=1.5, length=2.0),
    infeasible(5),
]


def test_throughput_by_trial_keeps_failed_trials_as_gaps_and_finds_the_baselines():
    info = throughput_by_trial.throughput_by_trial_info(RESULTS)
    assert [(p.number, p.tokens_per_s) for p in info.points] == [
        (0, 40.0), (1, 100.0), (2, 90.0), (3, None), (4, 60.0), (5, 60.0),
    ]  # fmt: skip
    assert [(b.batch_size, b.tokens_per_s) for b in info.baselines] == [(1, 40.0), (4, 100.0)]
    assert {b.name for b in info.baselines} == {
        "no speculation, batch 1",
        "no speculation, batch 4",
    }
    chart = throughput_by_trial.throughput_by_trial_figure(info)
    assert [shape.y0 for shape in chart.layout.shapes] == [40.0, 100.0]
    assert chart.layout.yaxis.title.text == "Output tokens/s"


def test_throughput_vs_latency_marks_the_best_the_baselines_and_the_infeasible():
    info = throughput_vs_latency.throughput_vs_latency_info(RESULTS, best=1)
    by_number = {point.number: point for point in info.points}
    assert sorted(by_number) == [0, 1, 2, 4, 5]
    assert by_number[4].tpot_ms_p95 == pytest.approx(1000 / 60)
    assert [n for n, p in by_number.items() if p.best] == [1]
    assert [n for n, p in by_number.items() if p.baseline] == [0, 1]
    assert [n for n, p in by_number.items() if not p.feasible] == [5]
    chart = throughput_vs_latency.throughput_vs_latency_figure(info)
    assert list(chart.data[-1].y) == [100.0]
    assert {trace.name for trace in chart.data} >= {"batch 1", "breaks a limit", "best"}


def test_a_trial_without_tpot_is_left_out_and_counted():
    one_token = trial(0)
    one_token = one_token.model_copy(
        update={"metrics": one_token.metrics.model_copy(update={"tpot_ms": None})}
    )
    info = throughput_vs_latency.throughput_vs_latency_info([one_token], best=None)
    assert (info.points, info.left_out) == ((), 1)


def test_acceptance_vs_speedup_names_a_leader_on_each_axis():
    info = acceptance_vs_speedup.acceptance_vs_speedup_info(RESULTS)
    assert [(p.number, p.acceptance_length, p.speedup) for p in info.points] == [
        (2, 3.0, 0.9), (4, 2.0, 1.5), (5, 2.0, 1.5),
    ]  # fmt: skip
    assert (info.longest_acceptance, info.highest_speedup) == (2, 4)
    assert info.points[0].low == pytest.approx(0.8)
    chart = acceptance_vs_speedup.acceptance_vs_speedup_figure(info)
    assert [trace.name for trace in chart.data][2:] == [
        "longest acceptance: trial 2",
        "highest speed-up: trial 4",
    ]


def test_time_shares_are_percent_and_sum_to_100():
    info = time_share.time_share_info(RESULTS)
    assert len(info.labels) == 5
    assert info.percents["verify"] == (60.0,) * 5
    assert sum(values[0] for values in info.percents.values()) == pytest.approx(100)
    assert len(time_share.time_share_figure(info).data) == 6


def test_memory_that_was_not_measured_is_a_gap_with_its_reason():
    info = memory_split.memory_split_info(RESULTS)
    assert info.mebibytes["base model weights"] == (200.0,) * 5
    assert info.mebibytes["rest"] == (None,) * 5
    assert info.reasons == ("the allocator keeps no count",)
    memory_split.memory_split_figure(info)


def test_position_acceptance_counts_from_one_and_keeps_gaps():
    info = position_acceptance.position_acceptance_info(trial(0, draft_len=3).metrics)
    assert (info.positions, info.percents) == ((1, 2, 3), (75.0, 50.0, None))
    position_acceptance.position_acceptance_figure(info)


def test_categories_are_ordered_by_their_length():
    info = category_acceptance.category_acceptance_info(trial(0, length=2.0).metrics)
    assert (info.categories, info.lengths, info.overall) == (("code", "chat"), (1.5, 2.5), 2.0)
    category_acceptance.category_acceptance_figure(info)


def test_labels_drop_the_config_where_many_trials_share_the_axis():
    few = trial_labels([baseline(0), trial(7, beam_width=4, draft_len=3, batch_size=4)])
    assert few == ("#0<br>no spec.<br>B1", "#7<br>W4 D3<br>B4")
    many = trial_labels([trial(n) for n in range(ROOM_FOR_CONFIGS + 1)])
    assert many[7] == "#7"


@pytest.mark.parametrize(
    "draw",
    [
        lambda: throughput_by_trial.throughput_by_trial_figure(
            throughput_by_trial.throughput_by_trial_info([failed(0)])
        ),
        lambda: throughput_vs_latency.throughput_vs_latency_figure(
            throughput_vs_latency.throughput_vs_latency_info([], None)
        ),
        lambda: acceptance_vs_speedup.acceptance_vs_speedup_figure(
            acceptance_vs_speedup.acceptance_vs_speedup_info([baseline(0)])
        ),
        lambda: time_share.time_share_figure(time_share.time_share_info([failed(0)])),
        lambda: memory_split.memory_split_figure(memory_split.memory_split_info([failed(0)])),
        lambda: position_acceptance.position_acceptance_figure(
            position_acceptance.position_acceptance_info(baseline(0).metrics)
        ),
    ],
)
def test_an_empty_chart_says_why(draw):
    chart = draw()
    assert not chart.data
    assert chart.layout.annotations[0].text


def test_no_chart_offers_to_send_data_to_the_cloud():
    assert CONFIG == {"displaylogo": False, "showSendToCloud": False}


def test_what_goes_to_the_browser_is_drawn_once_and_in_the_page_s_look():
    chart = go.Figure(
        [{"type": "heatmap", "x": np.array([0, 2]), "z": np.array([[1.5, np.nan], [2.0, 3.0]])}],
        {"yaxis": {"title": {"text": "share (%)"}, "automargin": False}},
    )
    assert "bdata" in chart.to_json()
    spec = json.loads(DrawnOnce(chart).to_json())
    (trace,) = spec["data"]
    assert (trace["x"], trace["z"]) == ([0, 2], [[1.5, None], [2.0, 3.0]])
    layout = spec["layout"]
    assert "template" not in layout
    assert "datarevision" in layout
    assert layout["yaxis"]["title"]["text"] == "share (%)"
    assert layout["yaxis"]["title"]["font"]["size"] == 14  # the usual one, beneath what is named
    assert (layout["yaxis"]["automargin"], layout["xaxis"]["automargin"]) == (False, True)
