"""Every real Nsight Systems export gives exactly the values that its README states."""

import pytest
from nsight_real_files import busy_of, capture_of, copies_of, needs_real_files, ranges_of

pytestmark = needs_real_files


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
