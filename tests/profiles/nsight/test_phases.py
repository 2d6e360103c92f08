"""Kernels and launches joined to the engine's phases, on captures to be added up by hand."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from nsight_real_files import capture_of, needs_real_files

from profiles.nsight.phases import captured_phases
from profiles.nsight.reading import Reading

PID, TID = 7, 70
RANGES = ["name", "start_ns", "end_ns", "pid", "tid"]
CALLS = ["name", "start_ns", "end_ns", "pid", "tid", "correlation_id"]
WORK = ["start_ns", "end_ns", "duration_ns", "gpu", "pid", "correlation_id"]
PHASES = [
    ("step", 0, 1000, PID, TID),
    ("draft", 0, 100, PID, TID),
    ("verify", 110, 300, PID, TID),
    ("host", 310, 990, PID, TID),
    ("step", 1100, 2000, PID, TID),
    ("draft", 1100, 1200, PID, TID),
    ("host", 1200, 1950, PID, TID),
    ("aten::mm", 20, 30, PID, TID),
]
LAUNCHES = [
    ("cudaLaunchKernel_v7000", 10, 20, PID, TID, 1),
    ("cudaLaunchKernelExC_v11060", 50, 60, PID, TID, 2),
    ("cudaGraphLaunch_v10000", 120, 130, PID, TID, 3),
    ("cudaStreamSynchronize_v3020", 320, 600, PID, TID, 4),
    ("cuLaunchKernel", 1110, 1120, PID, TID, 5),
]


def tables(**rows):
    reading = Reading(Path("made-by-hand"))
    columns = {
        "ranges": RANGES,
        "api_calls": CALLS,
        "kernels": [*WORK, "name"],
        "graph_spans": WORK,
        "copies": WORK,
        "launch_metrics": ["launch_id", "metric", "text"],
    }
    for name, of_table in rows.items():
        reading.add_rows(name, columns[name], of_table)
    return reading.tables


def work(start, end, correlation, *name, gpu=0, pid=PID):
    return (start, end, end - start, gpu, pid, correlation, *name)


def by_phase(seen):
    return {phase.phase: phase for phase in seen.phases}


def node_mode(**more):
    kernels = [
        work(200, 260, 1, "gather"),  # launched in draft, runs while the host is in verify
        work(300, 340, 2, "gemm"),
        work(350, 500, 3, "gemm"),  # both from the one graph launch of verify
        work(480, 700, 3, "softmax"),
        work(1300, 1400, 5, "gather"),
    ]
    return tables(ranges=PHASES, api_calls=LAUNCHES, kernels=kernels, **more)


def test_a_kernel_belongs_to_the_phase_that_launched_it():
    seen = captured_phases(node_mode(copies=[work(710, 720, 4)]))
    phases = by_phase(seen)
    assert list(phases) == ["draft", "verify", "host"]
    draft, verify, host = phases.values()
    assert (draft.instances, draft.host_ns, draft.launches, draft.kernels) == (2, 200, 3, 3)
    assert (draft.kernel_ns, draft.gpu_busy_ns) == (200, 200)
    assert (verify.launches, verify.kernels) == (1, 2)
    assert (verify.kernel_ns, verify.gpu_busy_ns) == (370, 350)  # 20 ns overlap
    assert (host.launches, host.kernels, host.copies, host.gpu_busy_ns) == (0, 0, 1, 0)
    assert seen.missing == {}


def test_kernels_of_a_graph_are_told_apart_in_node_mode():
    seen = captured_phases(node_mode())
    assert seen.graphs == "nodes"
    top = seen.kernels[0]
    assert (top.phase, top.kernel, top.count, top.in_graphs, top.total_ns) == (
        "verify",
        "softmax",
        1,
        1,
        220,
    )
    gather = next(kernel for kernel in seen.kernels if kernel.kernel == "gather")
    assert (gather.phase, gather.count, gather.in_graphs) == ("draft", 2, 0)


def test_graph_mode_says_that_kernels_are_hidden_and_counts_no_kernels_per_step():
    spans = [work(350, 700, 3)]
    kernels = [work(200, 260, 1, "gather"), work(300, 340, 2, "gemm")]
    seen = captured_phases(
        tables(ranges=PHASES, api_calls=LAUNCHES, kernels=kernels, graph_spans=spans)
    )
    verify = by_phase(seen)["verify"]
    assert (verify.kernels, verify.graphs, verify.gpu_busy_ns) == (0, 1, 350)
    assert seen.graphs == "hidden" and "hidden" in seen.graphs_note
    assert seen.step.kernels is None and seen.step.launches == 2.0


def test_a_capture_whose_kernels_are_all_inside_graphs_has_none_to_list():
    spans = [work(350, 700, 3)]
    seen = captured_phases(tables(ranges=PHASES, api_calls=LAUNCHES, graph_spans=spans))
    verify = by_phase(seen)["verify"]
    assert (verify.graphs, verify.kernels, verify.gpu_busy_ns) == (1, 0, 350)
    assert (seen.kernels, seen.graphs) == ([], "hidden")


def test_unknown_durations_are_unknown_in_the_sums():
    kernels = [(200, None, None, 0, PID, 1, "gather")]
    seen = captured_phases(tables(ranges=PHASES, api_calls=LAUNCHES, kernels=kernels))
    assert by_phase(seen)["draft"].kernel_ns is None
    assert seen.kernels[0].total_ns is None and seen.kernels[0].count == 1
    assert seen.gaps is None


@pytest.mark.parametrize("share_lost", [0.5, 1.0])
def test_columns_that_lost_their_values_never_break_the_account(share_lost):
    whole = node_mode(graph_spans=[work(710, 720, 3)], copies=[work(730, 740, 4)])
    for name, table in whole.items():
        for place, field in enumerate(table.schema):
            kept = [index < len(table) * (1 - share_lost) for index in range(len(table))]
            values = pc.if_else(pa.array(kept), table[field.name], pa.scalar(None, field.type))
            damaged = whole | {name: table.set_column(place, field, values)}
            seen = captured_phases(damaged)
            known = sum(phase.kernels for phase in seen.phases)
            assert known == len(table if name == "kernels" else whole["kernels"])


def test_steps_and_gaps_add_up():
    seen = captured_phases(node_mode())
    assert seen.steps == 2
    assert (seen.step.wall_ns, seen.step.launches, seen.step.kernels) == (950, 2.0, 2.5)
    assert seen.step.gpu_busy_ns == (450 + 100) / 2
    gaps = seen.gaps
    assert (gaps.window_ns, gaps.busy_ns) == (2000, 60 + 40 + 350 + 100)
    assert gaps.idle_ns == gaps.window_ns - gaps.busy_ns
    assert gaps.longest_gap_ns == 600
    phases = by_phase(seen)
    assert phases["draft"].gap_before_ns == 200 + 40 + 600
    assert phases["verify"].gap_before_ns == 10
    tail = 600
    assert sum(phase.gap_before_ns for phase in seen.phases) + tail == gaps.idle_ns


def test_the_same_correlation_id_in_another_process_is_another_launch():
    kernels = [work(200, 260, 1, "mine"), work(200, 260, 1, "theirs", pid=8)]
    seen = captured_phases(tables(ranges=PHASES, api_calls=LAUNCHES, kernels=kernels))
    assert {(k.phase, k.kernel) for k in seen.kernels} == {("draft", "mine"), ("outside", "theirs")}


def test_a_trace_that_names_no_process_of_kernels_is_joined_by_correlation_alone():
    kernels = [work(200, 260, 1, "gather", pid=None)]
    seen = captured_phases(tables(ranges=PHASES, api_calls=LAUNCHES, kernels=kernels))
    assert by_phase(seen)["draft"].kernels == 1


def test_phases_of_two_threads_keep_their_own_launches():
    ranges = [("draft", 0, 100, PID, TID), ("verify", 0, 100, PID, 71)]
    calls = [("cudaLaunchKernel", 10, 20, PID, 71, 1), ("cudaLaunchKernel", 10, 20, PID, TID, 2)]
    kernels = [work(200, 260, 1, "gemm"), work(300, 310, 2, "gather")]
    seen = captured_phases(tables(ranges=ranges, api_calls=calls, kernels=kernels))
    assert {(k.phase, k.kernel) for k in seen.kernels} == {("verify", "gemm"), ("draft", "gather")}


def test_a_capture_of_the_cpu_alone_has_host_time_and_says_what_is_missing():
    seen = captured_phases(tables(ranges=PHASES))
    verify = by_phase(seen)["verify"]
    assert (verify.host_ns, verify.kernels, verify.gpu_busy_ns, verify.launches) == (190,) + (
        None,
    ) * 3
    assert seen.step.wall_ns == 950 and seen.step.gpu_busy_ns is None
    assert seen.gaps is None
    assert seen.missing.keys() == {"kernels", "gaps"}


def test_work_of_two_gpus_gives_no_gaps():
    kernels = [work(200, 260, 1, "a"), work(200, 260, 2, "b", gpu=1)]
    seen = captured_phases(tables(ranges=PHASES, api_calls=LAUNCHES, kernels=kernels))
    assert seen.gaps is None and "one GPU" in seen.missing["gaps"]
    assert by_phase(seen)["draft"].gap_before_ns is None


def test_work_without_api_calls_stays_outside_and_says_why():
    seen = captured_phases(tables(ranges=PHASES, kernels=[work(200, 260, 1, "a")]))
    assert by_phase(seen)["outside"].kernels == 1
    assert "joined" in seen.missing["launches"]


def test_ranges_still_open_at_the_end_are_no_phases():
    open_range = ("verify", 110, None, PID, TID)
    seen = captured_phases(tables(ranges=[open_range, *PHASES[:2]]))
    assert list(by_phase(seen)) == ["draft"]


def test_an_empty_capture_has_no_phases_and_no_zeros():
    seen = captured_phases({})
    assert (seen.phases, seen.kernels, seen.steps, seen.step, seen.gaps) == (
        [],
        [],
        None,
        None,
        None,
    )
    assert seen.missing.keys() == {"phases", "kernels", "steps", "gaps"}


NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
END = "none:none:none:none:none:none"


@pytest.mark.parametrize(
    ("cell", "phase"),
    [
        (f'70  "<default domain>:step:{END}" "<default domain>:verify:{END}"', "verify"),
        (f'70  "<default domain>:draft:{END}" "<CCCL>:reduce:{END}"', "draft"),
        (f'70  "<default domain>:step:{END}"', "outside"),
        (None, "outside"),
    ],
)
def test_nsight_compute_names_the_innermost_phase(cell, phase):
    reading = Reading(Path("made-by-hand"))
    reading.add_rows("kernels", ["launch_id", "name", "duration_ns"], [(0, "gemm", 40)])
    reading.add_rows("launch_metrics", ["launch_id", "metric", "text"], [(0, NVTX, cell)])
    seen = captured_phases(reading.tables)
    (kernel,) = seen.kernels
    assert (kernel.phase, kernel.total_ns, kernel.in_graphs) == (phase, 40, None)
    assert ("phases" in seen.missing) == (phase == "outside")
    assert seen.gaps is None and seen.step is None and seen.missing["gaps"]


@needs_real_files
@pytest.mark.parametrize(
    ("name", "graphs"),
    [
        ("nsys_2025.3_h200_graph_mode.sqlite", "hidden"),
        ("nsys_2025.3_h200_node_mode.sqlite", "nodes"),
    ],
)
def test_real_h200_captures_in_both_graph_modes(name, graphs):
    capture = capture_of(name)
    seen = captured_phases(capture.tables)
    phases = by_phase(seen)
    assert seen.graphs == graphs
    assert seen.steps == 10
    assert (phases["draft"].kernels, phases["verify"].kernels) == (130, 20)
    assert seen.step.launches == 15
    assert sum(phase.kernels for phase in seen.phases) == capture.summary.kernels
    assert sum(kernel.total_ns for kernel in seen.kernels) == capture.summary.kernel_time_ns
    assert phases["outside"].graphs == (capture.summary.graph_spans or 0)
    assert seen.gaps.busy_ns + seen.gaps.idle_ns == seen.gaps.window_ns
