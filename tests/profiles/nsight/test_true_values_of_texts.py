"""Every real text file gives exactly its true values."""

import pytest
from nsight_real_files import (
    STATS,
    busy_of,
    capture_of,
    copies_of,
    needs_real_files,
    ranges_of,
    total_of,
)

pytestmark = needs_real_files


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
