"""The timeline of a trial: what the sampler wrote, on one axis with the trial's phases."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dashboard.charts.telemetry import COUNTERS, timeline_figure, timeline_info
from dashboard.data.phase_shares import MOST_BUCKETS, phase_shares
from dashboard.panels.loaded_telemetry import identity
from profiles.records import STEP_PHASES
from profiles.tables import write_table
from profiles.telemetry.counters import Missing
from profiles.telemetry.held_clocks import held_clocks
from profiles.telemetry.overview import CURVES, read_overview, zoomed
from profiles.telemetry.parts import SCHEMA, PartWriter, Reasons, read_reasons, write_reasons
from profiles.telemetry.samples import read_samples

GPU = "GPU-1"


def host(t_s: float, **values: float) -> dict[str, object]:
    return {"t_s": t_s, "unix_s": t_s, "source": "host", **values}


def gpu(t_s: float, **values: float) -> dict[str, object]:
    return host(t_s, **values) | {"source": GPU}


@pytest.fixture
def folder(tmp_path):
    writer = PartWriter(tmp_path)
    writer.write(
        [
            host(100.0, host_cpu_pct=50.0, host_memory_used_bytes=3 * 1024**3),
            gpu(100.0, sm_active_pct=10.0, power_mw=350_000, throttle_reasons=0),
            host(101.0, host_memory_used_bytes=1024**3),
        ]
    )
    writer.write(
        [
            gpu(101.0, sm_active_pct=90.0, power_mw=700_000, throttle_reasons=4),
            host(102.0, host_cpu_pct=70.0),
        ]
    )
    write_reasons(tmp_path, Reasons(columns={GPU: {"dram_active_pct": Missing("no GPM", 100.0)}}))
    return tmp_path


def info_of(folder, gpu=GPU, phases=None):
    return timeline_info(read_overview(folder), gpu, read_reasons(folder), phases)


def by_title(info):
    return {curve.counter.title: curve for curve in info.curves}


def test_counters_start_at_zero_keep_gaps_and_come_in_people_s_units(folder):
    curves = by_title(info_of(folder))
    cpu = curves["host CPU, all cores"].series
    assert cpu.seconds.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(cpu.mean, [50, np.nan, 70])
    assert curves["host memory used"].series.mean.tolist()[:2] == [3, 1]
    assert curves["GPU power"].series.mean.tolist() == [350, 700]
    assert curves["SM active"].counter.panel == "GPU activity (%)"


def test_what_was_not_measured_has_its_reason_and_is_no_curve(folder):
    info = info_of(folder)
    assert info.missing["DRAM active"] == "no GPM"
    assert info.missing["SM clock"] == "the sampler recorded no reason"
    assert "DRAM active" not in by_title(info)


def test_without_a_gpu_the_notices_say_why(tmp_path):
    PartWriter(tmp_path).write([host(1.0, host_cpu_pct=1.0)])
    write_reasons(tmp_path, Reasons(notices=["NVML: no driver"]))
    info = info_of(tmp_path, None)
    assert info.missing["SM active"] == info.missing["throttling"] == "NVML: no driver"
    assert [curve.column for curve in info.curves] == ["host_cpu_pct"]


def test_a_window_shows_only_what_is_in_it(folder):
    window = (100.5, 102.0)
    near = zoomed(folder, read_overview(folder), GPU, window)
    info = timeline_info(near, GPU, read_reasons(folder), window=window)
    curves = by_title(info)
    assert curves["SM active"].series.seconds.tolist() == [1]
    assert info.window_s == (0.5, 2.0) and "SM active" not in info.missing


def test_a_window_without_samples_keeps_the_panels_of_what_was_measured(folder):
    window = (101.2, 101.8)
    near = zoomed(folder, read_overview(folder), GPU, window)
    info = timeline_info(near, GPU, read_reasons(folder), window=window)
    assert [len(curve.series.mean) for curve in info.curves] == [0] * 4
    assert info.held is not None and "throttling" not in info.missing
    timeline_figure(info)


def test_every_curve_of_an_overview_has_its_colour_and_panel():
    assert tuple(COUNTERS) == CURVES


def test_a_torn_part_is_a_gap_and_rows_out_of_order_are_sorted(folder):
    (folder / "part-000002.parquet").write_bytes(b"PAR1 torn")
    PartWriter(folder).write([gpu(99.0, sm_active_pct=1.0)])
    sm_active = read_samples(folder, ["sm_active_pct"])[GPU]
    assert sm_active.t_s.tolist() == [99, 100, 101]
    assert sm_active.columns["sm_active_pct"].tolist() == [1, 10, 90]


def test_the_identity_follows_the_folder(folder, tmp_path):
    before = identity(folder)
    assert identity(folder) == before
    write_table(folder / "part-000009.parquet", pa.Table.from_pylist([], schema=SCHEMA))
    assert identity(folder) != before


def test_held_clocks_are_shares_of_samples_by_reason():
    t_s = np.arange(8.0)
    bits = np.array([0, 4, 4, 4, np.nan, np.nan, 0x20, 0])
    held = held_clocks(t_s, bits, (0.0, 8.0))
    assert held.edges_s.tolist() == [0, 2, 4, 6, 8]
    np.testing.assert_array_equal(held.percents["power cap"], [50, 100, np.nan, 0])
    np.testing.assert_array_equal(held.percents["software thermal"], [0, 0, np.nan, 50])
    assert list(held.percents) == ["power cap", "software thermal"]


def steps(*rows: dict[str, float]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    return frame.reindex(columns=["start_s", *(f"{phase}_ms" for phase in STEP_PHASES)])


def test_phases_share_the_time_in_the_order_of_a_step():
    """Two steps of 4 s: 1 s draft, 2 s verify, 1 s host; nothing between 4 and 8 s."""
    one = {"draft_ms": 1000, "verify_ms": 2000, "host_ms": 1000}
    shares = phase_shares(steps({"start_s": 0.0, **one}, {"start_s": 8.0, **one}), (0.0, 12.0))
    seconds = MOST_BUCKETS / 12
    verify = shares.percents["verify"]
    assert verify[int(0.5 * seconds)] == 0
    assert verify[int(2 * seconds)] == pytest.approx(100)
    assert shares.percents["draft"][int(8.5 * seconds)] == pytest.approx(100)
    total = sum(values.sum() for values in shares.percents.values()) / 100 / seconds
    assert total == pytest.approx(8.0)
    assert shares.percents["tree"].sum() == 0


def test_the_figure_names_every_unit_and_puts_phases_last(folder):
    shares = phase_shares(steps({"start_s": 100.0, "verify_ms": 500}), (100.0, 102.0))
    chart = timeline_figure(info_of(folder, phases=shares))
    titles = [axis.title.text for axis in chart.select_yaxes()]
    assert titles == [
        "GPU activity (%)", "Power (W)", "Host CPU (%)", "Host mem. (GiB)",
        "Clocks held by", "Phase (% of time)",
    ]  # fmt: skip
    verify = next(trace for trace in chart.data if trace.name == "verify")
    assert (verify.x[0], verify.y[0]) == (0, 100)


def test_a_long_trial_is_drawn_as_means_with_their_range(tmp_path):
    rows = 200_000
    values = np.full(rows, 50.0)
    values[1234] = 99.0
    columns = {name: pa.nulls(rows, SCHEMA.field(name).type) for name in SCHEMA.names}
    columns |= {
        "t_s": pa.array(np.arange(rows) / 100),
        "source": pa.array([GPU] * rows),
        "sm_active_pct": pa.array(values),
    }
    write_table(tmp_path / "part-000000.parquet", pa.table(columns, schema=SCHEMA))
    info = info_of(tmp_path)
    (curve,) = info.curves
    assert curve.series.high.max() == 99.0
    chart = timeline_figure(info)
    assert sum(len(trace.x) for trace in chart.data) < 3000
    assert max(chart.data[0].y) == 99.0


def test_a_single_sample_is_drawn(tmp_path):
    PartWriter(tmp_path).write([gpu(1.0, sm_active_pct=5.0, throttle_reasons=4)])
    shares = phase_shares(steps({"start_s": 0.5, "verify_ms": 1000}), (1.0, 1.0))
    info = info_of(tmp_path, phases=shares)
    assert info.curves[0].series.mean.tolist() == [5.0]
    timeline_figure(info)


def test_no_samples_say_so(tmp_path):
    chart = timeline_figure(info_of(tmp_path, None))
    assert chart.layout.annotations[0].text == "No samples yet."
