"""An imported profile on the page: its times, its kernels, and two of them side by side."""

from __future__ import annotations

import numpy as np
import pytest

from dashboard.charts.capture_timeline import (
    BUCKETS,
    capture_timeline_figure,
    capture_timeline_info,
)
from dashboard.data.capture_times import CaptureTimes, capture_times
from dashboard.data.captures import captures_of
from dashboard.data.import_file import allowed_file, import_upload, imports_dir
from dashboard.data.kernel_rows import KernelRow, kernel_rows, short_name
from dashboard.data.side_by_side import capture_pairs, kernel_pairs, pair, trial_pairs
from profiles.errors import UnreadableProfile
from profiles.nsight import write_import
from profiles.nsight.reading import no_progress
from profiles.store import RunStore
from tests.dashboard.hand_made import make_run, trial
from tests.dashboard.small_profile import small_profile
from tuner.errors import BadInput


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNER_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.delenv("TUNER_IMPORT_ROOT", raising=False)
    return make_run(RunStore(tmp_path / "runs"), trial(0))


@pytest.fixture
def imported(run, tmp_path):
    return write_import(imports_dir(run), small_profile(tmp_path / "small.sqlite"))


def test_lanes_start_with_the_first_event_and_metrics_keep_their_unit(imported):
    times = capture_times(imported)
    lanes = {lane.label: lane for lane in times.lanes}
    assert list(lanes) == ["GPU 0 kernels", "GPU 0 copies", "range verify", "range draft"]
    assert lanes["GPU 0 kernels"].start_ms.tolist() == [0, 2, 20]
    assert lanes["range verify"].end_ms.tolist() == [10]
    (metric,) = times.metrics
    assert (metric.metric, metric.gpu, metric.values.tolist()) == (
        "sm_active_pct", 0, [0, 50, 100, 25],
    )  # fmt: skip
    assert (times.length_ms, times.worked_ms) == (21.0, (0.0, 21.0))


def test_the_timeline_counts_overlapping_kernels_once(imported):
    info = capture_timeline_info(capture_times(imported), (0.0, 20.0))
    kernels = info.lanes[0]
    assert (kernels.label, kernels.events) == ("GPU 0 kernels", 3)
    busy_ms = kernels.busy_pct.sum() / 100 * 20 / BUCKETS
    assert busy_ms == pytest.approx(6.0)  # 10 to 16 ms of the capture
    chart = capture_timeline_figure(info)
    assert chart.data[0].y[0] == "GPU 0 kernels (3)"
    assert [axis.title.text for axis in chart.select_yaxes()][1] == "GPU metrics (%)"
    assert "ms since" in list(chart.select_xaxes())[-1].title.text


def test_a_window_counts_only_what_it_touches(imported):
    info = capture_timeline_info(capture_times(imported), (8.0, 12.0))
    assert {lane.label: lane.events for lane in info.lanes} == {
        "GPU 0 kernels": 0, "GPU 0 copies": 1, "range verify": 1, "range draft": 0,
    }  # fmt: skip
    assert info.curves[0].series.mean.tolist() == [100]


def test_kernels_are_added_up_by_name_with_their_share(imported):
    rows = kernel_rows(imported)
    assert [(row.kernel, row.launches, row.total_ms) for row in rows] == [
        ("gemm_64x64", 2, 5.0), ("softmax", 1, 4.0),
    ]  # fmt: skip
    assert rows[0].share_pct == pytest.approx(500 / 9)
    assert (rows[0].mean_us, rows[0].min_us, rows[0].max_us) == (2500, 1000, 4000)
    assert rows[1].name == "void at::softmax<float>(float *)"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void at::native::(anonymous namespace)::add<int, 4>(int *)", "add"),
        ("void at::<unnamed>::softmax_warp_forward<c10::BFloat16>(float)", "softmax_warp_forward"),
        ("nvjet_sm90_tst_64x64_NNT", "nvjet_sm90_tst_64x64_NNT"),
        (None, "(no name)"),
    ],
)
def test_a_kernel_s_own_name(name, expected):
    assert short_name(name) == expected


def test_an_upload_is_kept_under_a_safe_name(run, tmp_path):
    data = small_profile(tmp_path / "small.sqlite").read_bytes()
    import_upload(run, "../../<b>x</b>.sqlite", data, no_progress)
    (capture,) = captures_of(run)
    assert capture.summary.file_name == "b_.sqlite"
    assert capture.folder.parent == run.path / "imports"


def test_an_upload_that_is_no_profile_is_refused(run):
    with pytest.raises(UnreadableProfile, match="no profile that we know"):
        import_upload(run, "notes.txt", b"dear diary", no_progress)
    assert captures_of(run) == []


def test_a_path_outside_the_root_is_refused_by_name(run, tmp_path, monkeypatch):
    root = tmp_path / "captures"
    root.mkdir()
    (root / "inside.sqlite").write_bytes(b"x")
    (tmp_path / "secret").write_bytes(b"x")
    (root / "link").symlink_to(tmp_path / "secret")
    monkeypatch.setenv("TUNER_IMPORT_ROOT", str(root))
    assert allowed_file("inside.sqlite") == root / "inside.sqlite"
    assert allowed_file(str(root / "inside.sqlite")) == root / "inside.sqlite"
    for outside in ("../secret", str(tmp_path / "secret"), "link", "/etc/hostname"):
        with pytest.raises(BadInput) as caught:
            allowed_file(outside)
        assert (caught.value.field, caught.value.value) == ("path", outside)
        assert f"lies outside {root}" in caught.value.remedy
    for wrong in ("nothing.sqlite", ".", " ", "a\0b"):
        with pytest.raises(BadInput):
            allowed_file(wrong)


def test_without_a_root_paths_are_below_the_runs(run):
    assert allowed_file("sweep-1/run.json") == run.path / "run.json"


def test_pairs_have_no_change_where_a_side_is_missing_or_zero():
    assert pair("a", 2.0, 3.0).change_pct == pytest.approx(50)
    assert [pair("a", *sides).change_pct for sides in ((None, 1), (1, None), (0, 1))] == [None] * 3


def test_two_trials_number_by_number():
    pairs = {each.what: each for each in trial_pairs(trial(0), trial(1, ratio=3.0, length=2.5))}
    assert pairs["Output tokens/s"].change_pct == pytest.approx(100)
    assert pairs["Acceptance length (tokens per step)"].right == 2.5
    assert pairs["Energy per token (mJ)"].left is None


def test_two_captures_number_by_number(imported, run):
    (capture,) = captures_of(run)
    other = capture.summary.model_copy(update={"kernels": 6, "copies": None})
    pairs = {each.what: each for each in capture_pairs(capture.summary, other)}
    assert (pairs["Kernels"].left, pairs["Kernels"].change_pct) == (3, pytest.approx(100))
    assert pairs["Copies"].right is None
    assert pairs["GPU busy, all GPUs (ms)"].left == 7.0


def row(name: str, total_ms: float) -> KernelRow:
    return KernelRow(name, None, total_ms, 1, None, None, None, None, name)


def test_kernels_of_both_sides_by_difference():
    pairs = kernel_pairs([row("a", 5.0), row("b", 1.0)], [row("b", 2.0), row("c", 9.0)])
    assert [(p.kernel, p.left_ms, p.right_ms, p.difference_ms) for p in pairs] == [
        ("c", None, 9.0, 9.0), ("a", 5.0, None, -5.0), ("b", 1.0, 2.0, 1.0),
    ]  # fmt: skip


def test_a_capture_of_totals_only_says_that_it_has_no_times():
    info = capture_timeline_info(CaptureTimes((), (), 0.0), (0.0, 0.0))
    assert np.isfinite(info.edges_ms).all()
    assert "totals only" in capture_timeline_figure(info).layout.annotations[0].text
