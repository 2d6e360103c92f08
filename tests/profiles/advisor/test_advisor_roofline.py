"""Step anatomy and roofline are used instead of weaker signs wherever there are any."""

from __future__ import annotations

from advisor_profiles import evidence, metrics, result, telemetry
from roofline_cases import anatomy, sibling, verified

from profiles.advisor import unseen
from profiles.advisor.rules.far_below_roof import far_below_roof
from profiles.advisor.rules.foreign_gpu_process import foreign_gpu_process
from profiles.advisor.rules.free_nodes import free_nodes
from profiles.advisor.rules.host_gaps import host_gaps
from profiles.records import TimeShare

BUSY_MEMORY = telemetry({"dram_active_pct": 90.0, "tensor_active_pct": 5.0})


def test_free_nodes_cite_limits_and_measured_trees():
    (finding,) = free_nodes(verified(siblings=[sibling(1, 30.0, 12.5), sibling(2, 60.0, 14.0)]))
    assert finding.evidence == [
        "verify reads 333.3 GB/s, 83.3% of what was measured to be possible, and computes "
        "3.33 TFLOP/s, 8.3% of it",
        "tree_nodes = 10.0 per request and step, 1.0 requests in a step; by the limits reading "
        "takes longer than computing up to 100 nodes",
        "trees of this run took at most 10% longer to verify up to 30.0 nodes (60.0 nodes took "
        "longer), 4 trees measured",
    ]


def test_nodes_that_were_measured_to_cost_are_not_called_free():
    costly = [sibling(1, 14.0, 15.0)]
    assert free_nodes(verified(siblings=costly)) == []
    assert free_nodes(verified(siblings=costly, gpu=BUSY_MEMORY)) == []  # counters do not overrule


def test_few_free_nodes_are_not_worth_a_trial():
    assert free_nodes(verified(read_bytes_per_s=4e12)) == []


def test_limits_that_verify_beat_leave_the_judgement_to_counters():
    beaten = verified(read_bytes_per_s=1e11, gpu=BUSY_MEMORY)
    assert far_below_roof(beaten) == []
    (finding,) = free_nodes(beaten)
    assert "dram_active_pct = 90.0 %" in finding.evidence[0]


def test_gaps_between_steps_count_as_the_hosts():
    quiet = TimeShare(draft=0.3, verify=0.5, accept=0.1, host=0.1)
    trial = result(metrics=metrics(time_share=quiet), anatomy=anatomy(host=0.15, gaps=0.1))
    (finding,) = host_gaps(evidence(trial))
    assert finding.evidence == [
        "host 3.00 ms in a step (p95 6.00), 15.0% of wall time, and 2.00 ms between steps "
        "(p95 4.00), 10.0%, over 200 steps"
    ]
    assert host_gaps(evidence(result(anatomy=anatomy(host=0.15, gaps=0.05)))) == []


def test_one_sample_of_a_foreign_process_is_enough():
    steps = verified().steps
    once = [None] * 29 + [1]
    (finding,) = foreign_gpu_process(
        evidence(steps=steps, telemetry=telemetry({"foreign_processes": once}))
    )
    assert finding.severity == "problem"
    assert finding.evidence == [
        "foreign_processes = 1 at most on GPU-1, and over 0 in 1 of 1 samples while the trial "
        "served"
    ]


def test_in_a_container_more_processes_than_the_trials_own_are_foreign():
    steps = verified().steps
    alone = evidence(steps=steps, telemetry=telemetry({"gpu_processes": 1}))
    assert foreign_gpu_process(alone) == []
    (finding,) = foreign_gpu_process(
        evidence(steps=steps, telemetry=telemetry({"gpu_processes": 3}))
    )
    assert "gpu_processes = 3 at most on GPU-1, and over 1 in 30 of 30" in finding.evidence[0]
    assert "foreign_processes" in unseen(alone)
