"""Causes of low acceptance come in the order the record supports, and claim no more."""

import pytest
from advisor_profiles import evidence, metrics, result, speedup, with_metrics

from profiles.advisor import RULES
from profiles.advisor.evidence import SHAPE_ONLY_CATEGORY
from profiles.advisor.finding import NOT_SHOWN
from tuner.workloads import SHAPE_ONLY_CATEGORY as SERVED_CATEGORY

LOW = {"acceptance_length": 1.8, "path_acceptance_rate": 0.2}


def low_acceptance(profile):
    (finding,) = RULES["low_acceptance"](profile)
    return finding


def test_category_of_shapes_is_the_one_that_is_served():
    assert SHAPE_ONLY_CATEGORY == SERVED_CATEGORY


def test_template_is_only_ever_a_guess():
    finding = low_acceptance(with_metrics(**LOW))
    assert finding.causes == [f"{NOT_SHOWN}the drafter was trained with another chat template"]
    assert finding.knobs == {}


def test_temperature_leads_and_keeps_the_drafter_from_being_blamed():
    weak = with_metrics(workload={"temperature": 0.8}, position_acceptance=[0.4] * 4, **LOW)
    finding = low_acceptance(weak)
    assert finding.causes[0].startswith("temperature = 0.8:")
    assert not any("undertrained" in cause for cause in finding.causes)
    assert finding.knobs == {"temperature": [0.0]}


def test_one_category_far_below_the_others():
    lengths = {"code": 2.2, "chat": 2.0, "extraction": 1.4}
    causes = low_acceptance(with_metrics(acceptance_length_by_category=lengths, **LOW)).causes
    assert causes[0] == (
        "category 'extraction' is far below the others: acceptance_length 1.40 against a median of "
        "2.10 tokens per step (16 requests in 3 categories)"
    )
    lengths["extraction"] = 1.6
    causes = low_acceptance(with_metrics(acceptance_length_by_category=lengths, **LOW)).causes
    assert all(cause.startswith(NOT_SHOWN) for cause in causes)


def test_draft_longer_than_the_drafter_sees():
    finding = low_acceptance(with_metrics(position_acceptance=[0.6, 0.3, 0.3, None], **LOW))
    assert finding.causes[0] == (
        "the draft is longer than the drafter sees: position 1 is accepted in 60.0% of steps, "
        "position 3 in under 10%"
    )
    assert finding.knobs == {"draft_len": [1, 2]}


def test_weak_drafter_at_temperature_0():
    finding = low_acceptance(with_metrics(position_acceptance=[0.3, 0.5, 0.5, 0.5], **LOW))
    assert finding.causes[0].startswith(
        "the drafter may be undertrained: position_acceptance[0] = 30.0% at temperature 0"
    )


@pytest.mark.parametrize("length", [1.0, 1.5])
def test_prompts_without_text_say_nothing_of_the_drafter(length):
    shapes = with_metrics(
        acceptance_length=length,
        path_acceptance_rate=(length - 1) / 4,
        acceptance_length_by_category={SHAPE_ONLY_CATEGORY: length},
        tree_nodes_mean=8.0,
    )
    finding = low_acceptance(shapes)
    assert finding.severity == "info" and "says nothing about use" in finding.title
    assert finding.causes[0].startswith("the workload gives only lengths")
    assert RULES["idle_drafter"](shapes) == RULES["collapsing_beams"](shapes) == []


def test_low_acceptance_that_pays_is_no_warning():
    pays = low_acceptance(with_metrics(**LOW))
    assert (pays.severity, pays.title) == (
        "info",
        "Only 20.0% of drafted positions are accepted, and it still pays.",
    )
    unsure = evidence(result(metrics=metrics(**LOW), speedup=speedup(1.1, 0.99, 1.2)))
    assert low_acceptance(unsure).severity == "warning"
    one_round = evidence(result(metrics=metrics(**LOW), speedup=speedup(1.5, 1.5, 1.5, rounds=1)))
    assert low_acceptance(one_round).severity == "warning"


def test_idle_drafter_is_one_finding_and_names_temperature_first():
    idle = {"acceptance_length": 1.02, "path_acceptance_rate": 0.005}
    hot = with_metrics(workload={"temperature": 1.0}, **idle)
    assert RULES["low_acceptance"](hot) == []
    (finding,) = RULES["idle_drafter"](hot)
    assert finding.severity == "problem"
    assert finding.causes[0].startswith("temperature = 1:")
    (finding,) = RULES["idle_drafter"](with_metrics(**idle))
    assert all(cause.startswith(NOT_SHOWN) for cause in finding.causes)


@pytest.mark.parametrize("shape", [{"beam_width": 1}, {"draft_len": 1}])
def test_shapes_without_room_to_share_do_not_collapse(shape):
    assert RULES["collapsing_beams"](with_metrics(config=shape, tree_nodes_mean=5.0)) == []
