import sqlite3

import pytest
from nsight_fixtures import BUSY_NS, KERNEL_TIME_NS, KERNELS, MS, PID, Export, full_export

from profiles.nsight import UnreadableProfile, read_capture


@pytest.fixture
def export(tmp_path):
    return Export(tmp_path / "report.sqlite")


def busy_of(capture):
    return {busy.gpu: busy.busy_ns for busy in capture.summary.gpu_busy}


def notes_of(capture, level):
    return [note.text for note in capture.summary.notes if note.level == level]


def test_a_full_export(tmp_path):
    capture = read_capture(full_export(tmp_path / "report.sqlite"))
    summary = capture.summary
    assert summary.state == "complete"
    assert (summary.kernels, summary.kernel_time_ns) == (len(KERNELS), KERNEL_TIME_NS)
    assert busy_of(capture) == BUSY_NS  # overlap counts once
    kernel = capture.tables["kernels"].to_pylist()[0]
    assert (kernel["pid"], kernel["block_x"], kernel["dynamic_shared_memory_bytes"]) == (
        PID,
        256,
        1024,
    )
    copy = capture.tables["copies"].to_pylist()[0]
    assert (copy["kind"], copy["bytes"]) == ("HtoD", 4096)
    assert (copy["source_memory"], copy["target_memory"]) == ("pinned", "device")


def test_backtrace_rows_repeat_a_call_and_are_left_out(export):
    summary = read_capture(export.kernels().api_calls().done()).summary
    assert summary.api_calls == 3


def test_ranges_take_plain_and_registered_names_and_no_marks(export):
    capture = read_capture(export.ranges().done())
    ranges = capture.tables["ranges"].to_pylist()
    assert [(r["domain"], r["name"], r["style"], r["duration_ns"]) for r in ranges] == [
        ("tuner", "draft", "push_pop", 2 * MS),
        ("", "verify", "push_pop", 3 * MS),
        ("", "still open", "start_end", None),
    ]
    assert capture.summary.state == "complete"
    assert capture.summary.missing["kernels"] == "no kernels were recorded"


@pytest.mark.parametrize("suffix", ["_V2", "_V3"])
def test_tables_with_a_version_suffix(export, suffix):
    export.kernels("CUPTI_ACTIVITY_KIND_KERNEL" + suffix).ranges("NVTX_EVENTS" + suffix)
    summary = read_capture(export.done()).summary
    assert (summary.kernels, summary.ranges) == (len(KERNELS), 3)


def test_the_gpu_list_of_2019(export):
    export.kernels().table(
        "TARGET_INFO_CUDA_GPU", "vmId INTEGER, deviceId INTEGER, name TEXT", [(0, 0, "Tesla V100")]
    )
    summary = read_capture(export.done()).summary
    assert [gpu.name for gpu in summary.gpus] == ["Tesla V100"]


def test_two_processes_call_different_gpus_by_one_ordinal(export):
    """CUDA_VISIBLE_DEVICES: device 0 of the one is GPU 5, of the other GPU 6."""
    export.kernels(rows=[(0, 4, 0, 0)], process=11 << 24)
    other = (1 * MS, 3 * MS, 0, 1, 7, 0, 12 << 24, 1, 1, *[None] * 10)
    marks = ",".join("?" * len(other))
    export.connection.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({marks})", other)
    export.gpus([(5, 0, "H100"), (6, 1, "H100")])
    export.table(
        "TARGET_INFO_CUDA_DEVICE",
        "gpuId INTEGER, cudaId INTEGER, pid INTEGER",
        [(5, 0, 11), (6, 0, 12)],
    )
    assert busy_of(read_capture(export.done())) == {5: 4 * MS, 6: 2 * MS}


def test_whole_graphs_count_as_busy_and_their_kernels_are_said_to_be_hidden(export):
    capture = read_capture(export.kernels().graph_spans().done())
    assert busy_of(capture) == {0: 10 * MS, 1: 2 * MS}  # 0-6 with 5-9, then 10-11
    assert any("hidden" in text for text in notes_of(capture, "warning"))


def test_gpu_metrics_carry_their_unit_and_samples_before_zero_are_left_out(export):
    summary = read_capture(export.gpu_metrics(samples=20).done()).summary
    metrics = {metric.metric: metric for metric in summary.gpu_metrics}
    assert set(metrics) == {"sm_active_pct", "gpc_clock_mhz", "sm_active_unit_unknown"}
    assert (metrics["sm_active_pct"].rows, metrics["sm_active_pct"].max) == (20, 50)
    assert metrics["gpc_clock_mhz"].mean == pytest.approx(1710)


def test_percentages_that_cannot_be_are_unknown(export):
    export.gpu_metrics()
    export.connection.execute("UPDATE GPU_METRICS SET value = 1e18 WHERE metricId = 0")
    summary = read_capture(export.done()).summary
    active = next(m for m in summary.gpu_metrics if m.metric == "sm_active_pct")
    assert (active.min, active.mean, active.max) == (None, None, None)
    assert summary.state == "partial"


def test_a_kernel_without_an_end_has_no_duration(export):
    export.kernels()
    export.connection.execute('UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = 0 WHERE start > 0')
    capture = read_capture(export.done())
    assert capture.tables["kernels"]["duration_ns"].null_count == 3
    assert capture.summary.kernel_time_ns == 4 * MS
    assert any("without a possible end" in text for text in notes_of(capture, "problem"))


def test_launches_without_kernels_are_no_idle_gpu(export):
    capture = read_capture(export.api_calls().done())
    assert capture.summary.kernels is None
    assert capture.summary.gpu_busy is None
    assert any("was not collected" in text for text in notes_of(capture, "problem"))


def test_tables_without_rows_are_an_empty_capture(export):
    export.kernels(rows=[])
    summary = read_capture(export.done()).summary
    assert (summary.state, summary.kernels) == ("empty", None)
    assert summary.headline.startswith("empty capture")


@pytest.mark.parametrize("column", ["start", "deviceId", "demangledName"])
def test_a_missing_column_is_said(export, column):
    export.kernels()
    export.connection.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {column}")
    capture = read_capture(export.done())
    assert capture.summary.state == "partial"
    assert any(column in text for text in notes_of(capture, "problem"))


def test_text_in_a_number_column_is_unknown_not_zero(export):
    export.kernels()
    export.connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'abc' WHERE start = 0")
    capture = read_capture(export.done())
    assert capture.summary.kernels == len(KERNELS) - 1
    assert capture.summary.state == "partial"


def test_rows_over_the_limit_are_left_out_with_a_word(export):
    capture = read_capture(export.kernels().done(), max_rows=2)
    assert capture.summary.kernels == 2
    assert any("first 2 rows" in text for text in notes_of(capture, "problem"))


def test_no_sql_of_the_file_is_run(export):
    """A view that would never end stands where a table is expected."""
    export.connection.execute(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE forever(start) AS "
        '(SELECT 1 UNION ALL SELECT start + 1 FROM forever) SELECT start, start AS "end" '
        "FROM forever"
    )
    assert read_capture(export.done()).summary.kernels is None


def test_environment_variables_are_not_kept(export):
    secret = "PROCESS_0:ENVIRONMENT_VARIABLE"
    export.kernels().table("META_DATA_CAPTURE", "name TEXT, value TEXT", [(secret, "TOKEN=hush")])
    capture = read_capture(export.done())
    assert "hush" not in capture.summary.model_dump_json()


def test_another_sqlite_file_is_refused(tmp_path):
    path = tmp_path / "study.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE trials (number INTEGER)")
    connection.commit()
    connection.close()
    with pytest.raises(UnreadableProfile, match="no export of Nsight Systems"):
        read_capture(path)


def test_the_file_is_not_touched(export, tmp_path):
    path = export.kernels().done()
    before = path.read_bytes()
    path.chmod(0o444)
    read_capture(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.sqlite"]


def test_two_spellings_of_one_metric_are_one_metric(export):
    export.gpu_metrics(samples=4)
    export.connection.execute(
        "UPDATE TARGET_INFO_GPU_METRICS SET metricName = 'SM Active [Throughput %]' "
        "WHERE metricId = 2"
    )
    summary = read_capture(export.done()).summary
    assert {metric.metric: metric.rows for metric in summary.gpu_metrics} == {
        "sm_active_pct": 8,
        "gpc_clock_mhz": 4,
    }
