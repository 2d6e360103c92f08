"""Every rule fires on a profile made for it, cites exactly its numbers, and can be silent."""

import acceptance_cases
import machine_cases
import pytest
import roofline_cases
import speed_cases
from advisor_profiles import evidence, failed, hardware, metrics, result, steps, telemetry

from profiles.advisor import RULES, Finding, advise
from profiles.records import TrialConfig, WorkloadSpec

CASES = acceptance_cases.CASES | speed_cases.CASES | machine_cases.CASES | roofline_cases.CASES


def test_every_rule_has_a_profile_where_it_fires_and_one_where_it_is_silent():
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_rule_fires_with_exactly_its_evidence(rule):
    (finding,) = RULES[rule](CASES[rule].fires)
    assert finding.rule == rule
    assert finding.evidence == CASES[rule].cites
    assert finding.title.endswith(".") and finding.next_experiment.endswith(".")
    assert Finding.model_validate_json(finding.model_dump_json()) == finding


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_silent(rule):
    assert RULES[rule](CASES[rule].silent) == []


@pytest.mark.parametrize("rule", RULES)
def test_knobs_can_be_tried(rule):
    trial = CASES[rule].fires.result
    (finding,) = RULES[rule](CASES[rule].fires)
    for knob, values in finding.knobs.items():
        model = trial.config if knob in TrialConfig.model_fields else trial.workload
        assert isinstance(model, TrialConfig | WorkloadSpec) and values
        for value in values:
            changed = type(model).model_validate(model.model_dump() | {knob: value})
            assert changed != model


def test_nothing_is_said_of_a_healthy_trial():
    quiet = telemetry(
        {
            "sm_active_pct": 60.0,
            "dram_active_pct": 40.0,
            "tensor_active_pct": 20.0,
            "throttle_reasons": 0,
        },
        {"host_cpu_pct": 15.0, "process_cpu_pct": 100.0},
    )
    assert advise(evidence(steps=steps(), telemetry=quiet, hardware=hardware())) == []


@pytest.mark.parametrize("rule", RULES)
def test_missing_evidence_makes_a_rule_silent(rule):
    nothing = {"metrics": None, "speedup": None, "device": None, "precision": None}
    empty = steps().iloc[:0]
    for bare in (
        evidence(result(**nothing)),
        evidence(failed("stopped"), steps=empty, telemetry=telemetry()),
        evidence(result(**nothing), steps=steps(), telemetry=telemetry({}, {}), log=""),
        evidence(result(config={"draft_len": 0, "beam_width": 1}, speedup=None)),
    ):
        assert RULES[rule](bare) == []


def test_problems_come_first():
    mixed = evidence(
        result(metrics=metrics(acceptance_length=1.5, path_acceptance_rate=0.125)),
        steps=steps(),
        telemetry=telemetry({"sm_active_pct": 95.0, "throttle_reasons": 0x8}),
    )
    assert [(f.rule, f.severity) for f in advise(mixed)] == [
        ("throttling", "problem"),
        ("low_acceptance", "info"),
        ("busy_sms", "info"),
    ]
