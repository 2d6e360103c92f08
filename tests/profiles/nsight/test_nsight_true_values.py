"""Every real file gives exactly the values that its README states."""

from pathlib import Path

import pytest

from profiles.nsight import read_capture

DATA = Path(__file__).parents[4] / "shared" / "data" / "nsight"
STATS = "nsys_stats_2025.3_h200"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the shared real files are not here")


def capture_of(name):
    return read_capture(DATA / name)


def total_of(capture, table, name, column="total_ns"):
    """Sum of a column over the rows of a totals table whose name begins with `name`."""
    key = "kind" if table == "copy_totals" else "name"
    rows = [row for row in capture.tables[table].to_pylist() if row[key].startswith(name)]
    return sum(row[column] for row in rows)


def copies_of(capture, kind):
    return tuple(
        total_of(capture, "copy_totals", kind, column) for column in ("count", "total_bytes")
    )


def ranges_of(capture):
    rows = capture.tables["range_totals"].to_pylist()
    return {row["name"]: (row["instances"], row["total_ns"]) for row in rows}


def busy_of(capture):
    return {busy.device: busy.busy_ns for busy in capture.summary.gpu_busy}


def test_h200_2024_6():
    capture = capture_of("nsys_2024.6_h200.sqlite")
    summary = capture.summary
    assert (summary.kernels, summary.kernel_time_ns, summary.ranges) == (19, 390_428, 652)
    assert busy_of(capture) == {0: 390_428}
    assert copies_of(capture, "DtoH") == (1, 1)
    top, second, *_ = capture.tables["kernel_totals"].to_pylist()
    assert "nvfuser_none_f0_c0_r0_g0" in top["name"]
    assert (top["total_ns"], top["instances"]) == (132_511, 1)
    assert second["name"] == "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT"
    assert second["total_ns"] == 87_583
    assert (summary.schema_version, summary.captured_by) == ("3.16.1", "2024.6.2")
    assert summary.state == "complete"


def test_unified_memory_copies_and_no_nvtx_table():
    capture = capture_of("nsys_2023.4_unified_memory.sqlite")
    assert (capture.summary.kernels, capture.summary.kernel_time_ns) == (1, 2_337_721)
    assert copies_of(capture, "UVM HtoD") == (48, 8_388_608)
    assert copies_of(capture, "UVM DtoH") == (24, 4_194_304)
    assert capture.summary.ranges is None
    assert capture.summary.missing["ranges"] == "the report has no NVTX table"


def test_the_empty_capture_is_called_empty():
    summary = capture_of("nsys_2023.4_no_kernels.sqlite").summary
    assert summary.state == "empty"
    assert summary.headline.startswith("empty capture")
    assert (summary.kernels, summary.kernel_time_ns, summary.gpu_busy) == (None, None, None)
    assert {"kernels", "gpu_busy"} <= set(summary.missing)


def test_four_listed_gpus_one_used():
    capture = capture_of("nsys_2024.5_four_gpus.sqlite")
    summary = capture.summary
    assert (summary.kernels, summary.kernel_time_ns) == (1_312, 294_404_540)
    assert busy_of(capture) == {0: 294_404_540}
    assert len(summary.gpus) == 4
    assert summary.gpu_busy[0].gpu == 3  # CUDA device 0 is the fourth of the report's GPUs
    kernels = capture.tables["kernels"]
    assert len(kernels["name"].unique()) == 102
    assert len(kernels["short_name"].unique()) == 3
    assert copies_of(capture, "HtoD") == (254, 225_065_752)
    assert (summary.captured_by, summary.tool_version[:8]) == ("2022.2.1", "2024.5.1")


def test_2026_1_without_nvtx():
    capture = capture_of("nsys_2026.1_no_nvtx.sqlite")
    assert (capture.summary.kernels, capture.summary.kernel_time_ns) == (2, 4_129)
    assert capture.summary.missing["ranges"] == "the report has no NVTX table"


def test_two_gpus_without_a_list_of_gpus():
    capture = capture_of("nsys_2026.2_two_h100.sqlite")
    summary = capture.summary
    assert (summary.kernels, summary.kernel_time_ns) == (3_442, 44_829_522)
    assert busy_of(capture) == {0: 22_385_163, 1: 22_444_359}
    assert summary.ranges == 16_782
    assert copies_of(capture, "HtoD") == (450, 50_950_507_584)
    assert summary.gpus == [] and "gpus" in summary.missing


def test_graph_mode_hides_kernels_and_says_so():
    capture = capture_of("nsys_2025.3_h200_graph_mode.sqlite")
    summary = capture.summary
    assert (summary.kernels, summary.kernel_time_ns) == (170, 1_361_441)
    assert (summary.graph_spans, summary.graph_time_ns) == (20, 2_370_243)
    assert busy_of(capture) == {0: 3_730_116}
    assert summary.cuda_graph_mode == "graph"
    assert any("hidden" in note.text for note in summary.notes)
    ranges = ranges_of(capture)
    assert ranges["draft"] == (10, 2_985_042)
    assert ranges["verify"] == (10, 1_221_103)
    assert ranges["step"] == (10, 4_240_361)
    assert copies_of(capture, "HtoD") == (2, 8_388_608)
    assert copies_of(capture, "DtoH") == (1, 4_194_304)


def test_gpu_metrics_of_graph_mode():
    summary = capture_of("nsys_2025.3_h200_graph_mode.sqlite").summary
    metrics = {metric.metric: metric for metric in summary.gpu_metrics}
    assert (len(metrics), summary.gpu_metric_rows) == (22, 35_706)
    active = metrics["sm_active_pct"]
    assert active.source_name == "SMs Active [Throughput %]"
    assert (active.gpu, active.rows, active.min, active.max) == (0, 1_623, 0, 38)
    assert metrics["gpc_clock_mhz"].max == pytest.approx(1979.9975)  # stored in Hz


def test_node_mode_shows_the_kernels_of_graphs():
    capture = capture_of("nsys_2025.3_h200_node_mode.sqlite")
    summary = capture.summary
    assert (summary.kernels, summary.kernel_time_ns) == (470, 3_734_243)
    assert (summary.kernels_in_graphs, summary.cuda_graph_mode) == (300, "node")
    assert busy_of(capture) == {0: 3_730_403}
    assert summary.gpu_metric_rows == 11_594
    active = next(m for m in summary.gpu_metrics if m.metric == "sm_active_pct")
    assert active.max == 30
    assert summary.notes == []


@pytest.mark.parametrize(("mode", "kernels"), [("graph", 170), ("node", 470)])
def test_stats_kernel_summaries_agree_with_their_sqlite(mode, kernels):
    capture = capture_of(f"{STATS}/{mode}_cuda_gpu_kern_sum.csv")
    sqlite = capture_of(f"nsys_2025.3_h200_{mode}_mode.sqlite")
    assert capture.summary.kernels == kernels
    assert capture.summary.gpu_busy is None
    assert capture.summary.missing["gpu_busy"].startswith("summaries have no start times")
    ours, theirs = (
        {row["name"]: row for row in c.tables["kernel_totals"].to_pylist()}
        for c in (sqlite, capture)
    )
    assert set(ours) == set(theirs)
    for name, row in theirs.items():
        for column in ("instances", "total_ns", "min_ns", "max_ns"):
            assert ours[name][column] == row[column]
        for column in ("mean_ns", "median_ns", "stddev_ns"):
            assert ours[name][column] == pytest.approx(row[column], abs=0.051)


def test_stats_gpu_trace_agrees_with_its_sqlite():
    capture = capture_of(f"{STATS}/node_cuda_gpu_trace.csv")
    assert (capture.summary.kernels, capture.summary.kernel_time_ns) == (470, 3_734_243)
    assert busy_of(capture) == {0: 3_730_403}
    assert copies_of(capture, "HtoD") == (2, 8_388_000)  # printed as 4.194 MB each
    assert any("rounded" in note.text for note in capture.summary.notes)


@pytest.mark.parametrize("report", ["nvtx_sum", "nvtx_pushpop_trace"])
def test_stats_ranges_agree_with_their_sqlite(report):
    ours = ranges_of(capture_of("nsys_2025.3_h200_node_mode.sqlite"))
    assert ranges_of(capture_of(f"{STATS}/node_{report}.csv")) == ours


def test_stats_kernels_by_range():
    rows = capture_of(f"{STATS}/node_nvtx_kern_sum.csv").tables["range_kernels"].to_pylist()
    assert len(rows) == 26
    # This capture launched 320 of its kernels one by one and the graph launches only once each.
    softmax = [r for r in rows if r["range"] == "verify" and "softmax_warp" in r["kernel"]]
    assert [(r["instances"], r["total_ns"], r["style"]) for r in softmax] == [
        (10, 391_744, "push_pop")
    ]


def test_stats_api_and_copy_summaries():
    api = capture_of(f"{STATS}/node_cuda_api_sum.csv")
    assert total_of(api, "api_totals", "cudaGraphLaunch") == 368_941
    assert api.summary.api_calls == 1_623
    copies = capture_of(f"{STATS}/node_cuda_gpu_mem_size_sum.csv")
    assert copies_of(copies, "HtoD") == (2, 8_389_000)
    assert copies.tables["copy_totals"]["total_ns"].null_count == 2


def test_stats_printed_tables():
    capture = capture_of("nsys_stats_stdout_h200.txt")
    totals = capture.tables["kernel_totals"]
    assert len(totals) == 15
    assert (capture.summary.kernels, capture.summary.kernel_time_ns) == (19, 401_436)
    cut = [name for name, cut in zip(*_names_and_cuts(totals), strict=True) if cut]
    assert cut and all(len(name) == 100 for name in cut)
    assert any("cut" in note.text for note in capture.summary.notes)
    assert capture.tables["copy_totals"]["total_bytes"].null_count == 2  # printed as 0.000 MB
    assert {"api_totals", "range_totals"} <= set(capture.tables)


def _names_and_cuts(totals):
    return totals["name"].to_pylist(), totals["name_is_cut"].to_pylist()


def metric_of(capture, launch, metric, section=None):
    for row in capture.tables["launch_metrics"].to_pylist():
        if (row["launch_id"], row["metric"]) == (launch, metric) and row["section"] == section:
            return row["value"], row["unit"]
    raise AssertionError(f"no {metric}")


def test_compute_details_and_raw_pages_of_one_report_agree():
    details, raw = capture_of("ncu_details_h200.csv"), capture_of("ncu_raw_h200.csv")
    assert details.summary.profiled_launches == raw.summary.profiled_launches == 6
    exact = [13_728, 25_408, 41_536, 25_440, 41_216, 25_408]
    assert raw.tables["kernels"]["duration_ns"].to_pylist() == exact
    rounded = details.tables["kernels"]["duration_ns"].to_pylist()
    assert rounded == pytest.approx(exact, abs=5)
    light = "GPU Speed Of Light Throughput"
    assert metric_of(details, 1, "Memory Throughput", light) == (56.78, "%")
    assert metric_of(details, 1, "DRAM Frequency", light) == (3.2e9, "hz")
    throughput = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
    assert metric_of(raw, 1, throughput) == (56.776762, "%")
    assert details.tables["kernels"]["registers_per_thread"].to_pylist()[1] == 168
    assert raw.tables["kernels"].select(["grid_x", "block_x"]).to_pylist()[1] == {
        "grid_x": 2,
        "block_x": 384,
    }
    assert len(details.tables["diagnostics"]) == 23  # advice of its rules


def test_compute_metrics_of_2023():
    capture = capture_of("ncu_metrics_2023.csv")
    section = "Command line profiler metrics"
    assert metric_of(capture, 0, "dram__bytes.sum", section) == (32_746_880, "byte")
    assert metric_of(capture, 0, "gpu__time_duration.sum", section) == (10_776_576, "ns")
    assert capture.summary.profiled_launches == 9


def test_kineto_of_torch_2_11():
    capture = capture_of("kineto_h200.json.gz")
    summary = capture.summary
    assert (summary.format, summary.kernels, summary.copies) == ("kineto", 306, 3)
    assert summary.kernel_time_ns == 4_629_474
    assert summary.gpus[0].name == "NVIDIA H200"
    assert summary.origin_epoch_ns // 10**9 == 1_795_976_490


def test_kineto_of_torch_1_8():
    capture = capture_of("kineto_old.json.gz")
    summary = capture.summary
    assert (summary.kernels, summary.copies, summary.api_calls) == (9_564, 451, 10_920)
    assert summary.kernel_time_ns == 640_354_000
    assert copies_of(capture, "HtoD") == (12, 115_607_040)
