import pytest
from measured import change, requests, steps

from profiles.anatomy import step_anatomy
from profiles.records import STEP_PHASES, TrialResult


def test_phases_and_gaps_of_a_round_by_hand():
    # steps of 10 ms begin at 10.0, 10.1, 10.2 and 10.3 s; requests from 10.0 to 10.4 s
    found = step_anatomy([(steps(), requests())])
    assert found.steps == 4
    assert found.wall_ms == pytest.approx(400)
    assert list(found.phases) == list(STEP_PHASES)
    assert found.phases["verify"].mean_ms == pytest.approx((8 + 6 + 6 + 7) / 4)
    assert found.phases["verify"].p50_ms == pytest.approx(6.5)
    assert found.phases["verify"].share == pytest.approx(27 / 400)
    assert found.phases["draft"].mean_ms == pytest.approx(5 / 4)
    assert found.phases["draft"].p50_ms == pytest.approx(2)  # the first step drafted nothing
    assert found.phases["tree"].share == found.phases["tree"].p95_ms == 0
    assert found.gaps.mean_ms == pytest.approx(270 / 4)  # 0 before the first, then 90 each
    assert found.accounted_share == pytest.approx(310 / 400)  # 90 ms after the last are nobody's


def test_what_lies_between_rounds_is_no_gap():
    later = [change(step, start_s=step.start_s + 50) for step in steps()]
    served = [
        change(r, arrival_s=r.arrival_s + 50, emission_s=[t + 50 for t in r.emission_s])
        for r in requests()
    ]
    one, two = step_anatomy([(steps(), requests())]), step_anatomy([
        (steps(), requests()), (later, served)
    ])  # fmt: skip
    assert two.wall_ms == pytest.approx(2 * one.wall_ms)
    assert two.gaps.mean_ms == pytest.approx(one.gaps.mean_ms)
    assert two.accounted_share == pytest.approx(one.accounted_share)


def test_time_that_the_steps_lose_shows():
    lossy = [change(step, host_ms=0.0, verify_ms=step.verify_ms - 1) for step in steps()]
    whole = step_anatomy([(steps(), requests())])
    found = step_anatomy([(lossy, requests())])
    assert sum(p.share for p in found.phases.values()) < sum(p.share for p in whole.phases.values())
    assert found.gaps.share > whole.gaps.share


@pytest.mark.parametrize("rounds", [[], [([], requests())], [(steps(), [])]])
def test_nothing_to_take_apart_is_refused(rounds):
    with pytest.raises(ValueError, match="every round needs steps and requests"):
        step_anatomy(rounds)


def test_results_of_before_still_open():
    old = (
        '{"number": 0, "state": "complete", "config": {}, "config_hash": "0", "workload": {},'
        ' "started_at": "2026-01-01T00:00:00+00:00"}'
    )
    result = TrialResult.model_validate_json(old)
    assert result.anatomy is result.shape is result.limits is None
