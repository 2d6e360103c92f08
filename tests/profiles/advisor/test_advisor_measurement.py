"""What may count as evidence: own steps only, real counters only, intervals that are intervals."""

import pandas as pd
import pytest
from advisor_profiles import (
    evidence,
    failed,
    hardware,
    metrics,
    percentiles,
    result,
    speedup,
    steps,
    telemetry,
    with_metrics,
)

from profiles.advisor import RULES, unseen
from profiles.records import MemorySplit, TextCheck, TrialState
from profiles.telemetry.counters import Missing
from profiles.telemetry.parts import Reasons


def only(rule, profile):
    (finding,) = RULES[rule](profile)
    return finding


@pytest.mark.parametrize(("start_s", "samples"), [(90.0, 60), (104.5, 60), (103.5, 9)])
def test_samples_outside_the_trials_steps_do_not_count(start_s, samples):
    # the steps run from 100 to 104 s; the baseline's rounds and loading lie around them
    busy = telemetry({"sm_active_pct": 99.0}, start_s=start_s, samples=samples)
    assert RULES["busy_sms"](evidence(steps=steps(), telemetry=busy)) == []


def test_sm_active_needs_steps_and_wide_beams():
    busy = telemetry({"sm_active_pct": 99.0})
    assert RULES["busy_sms"](evidence(telemetry=busy)) == []
    narrow = result(config={"beam_width": 3})
    assert RULES["busy_sms"](evidence(narrow, steps=steps(), telemetry=busy)) == []


def test_what_could_not_be_seen_is_told_with_its_reason():
    reasons = Reasons(columns={"GPU-1": {"sm_active_pct": Missing("GPM needs Hopper", 0.0)}})
    samples = telemetry({"throttle_reasons": 0, "sm_active_pct": None})
    told = unseen(evidence(steps=steps(), telemetry=samples, reasons=reasons))
    assert told["sm_active_pct"] == "GPM needs Hopper"
    assert told["host_cpu_pct"] == "fewer than 10 samples while the trial served"
    assert "throttle_reasons" not in told
    assert set(unseen(evidence()).values()) == {"no telemetry was recorded"}
    no_gpu = evidence(
        steps=steps(),
        telemetry=telemetry(host={"host_cpu_pct": 1.0, "process_cpu_pct": 1.0}),
        reasons=Reasons(notices=["no NVIDIA driver"]),
    )
    assert unseen(no_gpu)["dram_active_pct"] == "no NVIDIA driver"
    no_steps = unseen(evidence(telemetry=samples))
    assert no_steps["sm_active_pct"].startswith("the trial's steps were not recorded")


def test_power_cap_alone_only_qualifies():
    capped = evidence(steps=steps(), telemetry=telemetry({"throttle_reasons": 0x4}))
    finding = only("throttling", capped)
    assert finding.severity == "info" and "power limit" in finding.title


def test_foreign_load_needs_to_know_the_cores():
    loaded = telemetry(host={"host_cpu_pct": 90.0, "process_cpu_pct": 100.0})
    assert RULES["foreign_load"](evidence(steps=steps(), telemetry=loaded)) == []
    known = evidence(steps=steps(), telemetry=loaded, hardware=hardware(cores=2))
    assert only("foreign_load", known).title.startswith("Other processes used 0.8 of 2 cores")


@pytest.mark.parametrize(
    ("value", "requests", "severity", "words"),
    [
        (speedup(1.5, 1.35, 1.65), 64, "info", "known only roughly"),
        (speedup(1.0, 0.9, 1.1), 64, "warning", "holds 1"),
        (speedup(1.5, 1.5, 1.5, rounds=1), 32, "warning", "one round"),
    ],
)
def test_wide_interval_says_how_many_requests(value, requests, severity, words):
    finding = only("wide_interval", evidence(result(speedup=value)))
    assert finding.knobs == {"requests": [requests]}
    assert finding.severity == severity and words in finding.title


def test_enough_requests_to_fill_eight_batches():
    batch_16 = result(config={"batch_size": 16}, speedup=speedup(1.5, 1.5, 1.5, rounds=1))
    assert only("wide_interval", evidence(batch_16)).knobs == {"requests": [128]}


def test_one_round_does_not_show_that_speculation_is_useless():
    one = result(speedup=speedup(0.5, 0.5, 0.5, rounds=1))
    assert RULES["useless_speculation"](evidence(one)) == []


def test_crossover_is_named_only_among_measured_twins():
    slow = result(9, {"batch_size": 8}, speedup=speedup(0.8, 0.77, 0.83))
    other_device = result(1, device="NVIDIA L4")
    other_prompts = result(2, workload={"seed": 7})
    unfinished = result(3, state=TrialState.RUNNING, metrics=None)
    larger = result(4, {"batch_size": 16})
    profile = evidence(slow, siblings=[other_device, other_prompts, unfinished, larger])
    assert "crossover" not in " ".join(only("useless_speculation", profile).evidence)


def test_text_that_differs_in_fp32_is_a_fault_and_elsewhere_perhaps_a_near_tie():
    text = TextCheck(requests=4, equal=3, first_difference="request a, output token 7")
    fault = only("text_differs", evidence(result(precision="fp32", text=text)))
    assert fault.severity == "problem" and fault.knobs == {"beam_width": [1], "draft_len": [1]}
    tie = only("text_differs", evidence(result(precision="fp16", text=text)))
    assert tie.severity == "warning" and tie.knobs == {"quantization": ["fp32"]}
    assert tie.causes[0].startswith("Not shown")  # no margin was recorded
    assert RULES["text_differs"](evidence(result(precision=None, text=text))) == []


def test_tail_without_shared_steps_is_not_blamed_on_prefill():
    tail = metrics(ttft_ms=percentiles(30.0, 900.0))
    assert RULES["prefill_tail"](evidence(result(metrics=tail))) == []
    assert RULES["prefill_tail"](evidence(result(metrics=tail), steps=steps())) == []
    apart = steps(reading=10, reading_ms=80.0)
    apart["request_ids"] = pd.Series([[]] * 10 + [["a"]] * 190)
    assert RULES["prefill_tail"](evidence(result(metrics=tail), steps=apart)) == []
    empty = evidence(result(metrics=tail), steps=steps().iloc[:0])
    assert RULES["prefill_tail"](empty) == []
    no_tail = evidence(steps=steps(reading=10, reading_ms=80.0))
    assert RULES["prefill_tail"](no_tail) == []


def memory(**changes) -> MemorySplit:
    values = {"weights_bytes": 10, "drafter_bytes": 1, "kv_bytes": 20, "rest_bytes": None}
    return MemorySplit(**values | {"peak_bytes": None} | changes)


def test_large_kv_cache_is_told_without_knowing_the_gpu():
    finding = only("memory_pressure", evidence(result(memory=memory(kv_bytes=2**30))))
    assert finding.severity == "info"
    assert finding.evidence == [
        "kv_bytes = 1.00 GiB, 100.0% of weights, drafter and KV 1.00 GiB, at batch_size 1 and "
        "max_new_tokens 64"
    ]


def test_pool_that_fills_itself_is_no_pressure():
    pooled = result(config={"engine": "tensorrt_llm"}, memory=memory(peak_bytes=99 * 2**30))
    assert RULES["memory_pressure"](evidence(pooled, hardware=hardware())) == []


def test_peak_on_a_cpu_is_not_held_against_the_gpu():
    on_cpu = result(device="8 x test", memory=memory(peak_bytes=99 * 2**30))
    assert RULES["memory_pressure"](evidence(on_cpu, hardware=hardware())) == []


def test_out_of_memory_goes_down_the_ladder_from_the_known_precision():
    error = "loading does not fit: CUDA out of memory. Tried to allocate 16.00 GiB."
    trial = failed(error, config={"batch_size": 8, "quantization": "fp8"})
    finding = only("out_of_memory", evidence(trial))
    assert finding.knobs == {
        "batch_size": [4, 2],
        "max_new_tokens": [32],
        "quantization": ["int8_sq", "int4_awq"],
    }
    order = ["batch_size", "paged KV", "FP16, FP8, INT8, INT4", "sharding"]
    places = [finding.next_experiment.index(word) for word in order]
    assert places == sorted(places)
    assert "quantization" not in only("out_of_memory", evidence(failed(error))).knobs


def test_baseline_with_host_gaps_is_told_too():
    share = metrics().time_share.model_copy(update={"host": 0.5})
    baseline = with_metrics(config={"beam_width": 1, "draft_len": 0}, time_share=share)
    assert only("host_gaps", baseline).knobs == {"batch_size": [2]}
