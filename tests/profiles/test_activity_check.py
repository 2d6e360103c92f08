"""GPU activity by two witnesses over the same windows."""

import pandas as pd
import pytest

from profiles.activity_check import check_activity
from profiles.nsight.reading import Reading
from profiles.telemetry.counters import Missing
from profiles.telemetry.parts import Reasons

ORIGIN_S = 1000.0  # of the capture, on the telemetry's clock
GPU = "GPU-1"
NO_REASONS = Reasons()
REFUSAL = Missing("GPM needs a Hopper GPU or newer", ORIGIN_S)


def nsight(value_at, seconds=2.0, every_s=0.01, metrics=("sm_active_pct",)):
    """GPU metrics every 10 ms; `value_at` gives a value for each time since the origin."""
    times = [index * every_s for index in range(round(seconds / every_s))]
    rows = [(round(t * 1e9), 0, name, float(value_at(t))) for t in times for name in metrics]
    reading = Reading("made-by-hand")
    reading.add_rows("gpu_metrics", ["timestamp_ns", "gpu", "metric", "value"], rows)
    return reading.tables["gpu_metrics"]


def telemetry(values, metric="sm_active_pct", source=GPU, every_s=0.1):
    rows = [
        {"t_s": ORIGIN_S + index * every_s, "source": source, metric: value}
        for index, value in enumerate(values)
    ]
    return pd.DataFrame([*rows, {"t_s": ORIGIN_S, "source": "host"}])


def sm_active(seen, samples, *window, reasons=NO_REASONS):
    checks = check_activity(seen, samples, reasons, *window)
    return next(check for check in checks if check.metric == "sm_active_pct")


def test_means_are_taken_over_the_windows_that_lie_in_the_capture():
    seen = nsight(lambda t: 80 if t < 1.0 else 20)
    values = [None, None, *[79.0] * 9, *[21.0] * 9]  # each covers the 0.2 s before its row
    check = sm_active(seen, telemetry(values), ORIGIN_S, ORIGIN_S, ORIGIN_S + 1.0)
    assert check.windows == 9
    assert check.nsight_pct == pytest.approx(80.0)
    assert check.gpm_pct == pytest.approx(79.0)
    assert check.difference_points == pytest.approx(1.0)


def test_a_window_that_reaches_out_of_the_capture_is_left_out():
    seen = nsight(lambda t: 50)
    values = [None, None, *[50.0] * 4, 99.0]
    begin_s, end_s = ORIGIN_S + 0.05, ORIGIN_S + 0.55  # rows at 0.3, 0.4 and 0.5 s fit whole
    check = sm_active(seen, telemetry(values), ORIGIN_S, begin_s, end_s)
    assert (check.windows, check.gpm_pct) == (3, 50.0)


def test_reads_and_writes_of_dram_add_up():
    seen = nsight(lambda t: 10, metrics=("dram_read_pct", "dram_write_pct"))
    values = telemetry([None, None, 19.0, 19.0], metric="dram_active_pct")
    checks = check_activity(seen, values, NO_REASONS, ORIGIN_S, ORIGIN_S, ORIGIN_S + 1)
    check = next(check for check in checks if check.metric == "dram_active_pct")
    assert (check.nsight_pct, check.difference_points) == (20.0, 1.0)


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (telemetry([None, None, None]), "no GPM counter: it was not sampled"),
        (telemetry([]), "the telemetry has no GPU"),
        (
            pd.concat([telemetry([5.0]), telemetry([5.0], source="GPU-2")]),
            "the telemetry has several GPUs",
        ),
        (telemetry([None, None, 5.0, 5.0], every_s=1.0), "no whole window"),
    ],
)
def test_what_cannot_be_compared_says_why_and_is_no_zero(samples, reason):
    check = sm_active(nsight(lambda t: 5), samples, ORIGIN_S, ORIGIN_S, ORIGIN_S + 0.9)
    assert (check.nsight_pct, check.gpm_pct, check.difference_points) == (None, None, None)
    assert reason in check.reason


def test_a_metric_that_nsight_did_not_record_says_so():
    seen = nsight(lambda t: 5, metrics=("tensor_active_pct",))
    check = sm_active(seen, telemetry([None, 5.0]), ORIGIN_S, ORIGIN_S, ORIGIN_S + 1)
    assert check.reason == "Nsight recorded no such GPU metric"


def test_the_samplers_own_reason_is_repeated():
    refused = Reasons(columns={GPU: {"sm_active_pct": REFUSAL}})
    check = sm_active(
        nsight(lambda t: 5), telemetry([None]), ORIGIN_S, ORIGIN_S, ORIGIN_S + 1, reasons=refused
    )
    assert check.reason == f"no GPM counter: {REFUSAL.reason}"
