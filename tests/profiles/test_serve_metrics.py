import math

import pytest
from measured import BEAM_WIDTH, DRAFT_LEN, change, requests, steps

from profiles.metrics import summarize
from profiles.records import Percentiles, RequestRecord, StepRecord


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-12)


@pytest.fixture
def metrics():
    return summarize(steps(), requests(), BEAM_WIDTH, DRAFT_LEN)


def test_counts_one_step_for_each_request_served_and_leaves_prefill_out(metrics):
    assert metrics.steps == 5
    assert metrics.committed_tokens == 4 + 1 + 1 + 3 + 2 == 11
    assert metrics.output_tokens == 13  # 11 and one by prefill for each request
    assert metrics.requests == 2


def test_acceptance_length_is_committed_per_step(metrics):
    assert metrics.acceptance_length == close(11 / 5)
    assert metrics.acceptance_length_by_category == {"chat": close(5 / 2), "code": close(6 / 3)}


def test_path_and_tree_rates_have_their_own_denominators(metrics):
    assert metrics.path_acceptance_rate == close((11 / 5 - 1) / 3)
    assert metrics.tree_acceptance_rate == close((3 + 0 + 1 + 2 + 1) / (6 + 3 + 4 + 6 + 5))


def test_position_acceptance_is_conditional_on_the_position_before(metrics):
    # accepted counts 3, 0, 1, 2, 1: 5 reach position 1 (4 pass), 4 reach 2 (2 pass), 2 reach 3 (1)
    assert metrics.position_acceptance == [close(4 / 5), close(2 / 4), close(1 / 2)]


def test_rates_of_steps_that_drafted_less_count_what_was_drafted():
    # Step 2 drafts 2 for each of its two requests, step 3 nothing, step 1 all 3 of the config.
    first, whole, short, none = steps()
    short = change(short, draft_len=2, tree_nodes=[3, 5])
    none = change(none, draft_len=0, tree_nodes=[1], accepted=[0], committed=[1])
    a, b = requests()
    b = change(b, output_token_ids=[1, 2, 3, 4, 5, 6], emission_tokens=[1, 1, 3, 1])
    found = summarize([first, whole, short, none], [a, b], BEAM_WIDTH, DRAFT_LEN)
    assert found.draft_len_mean == close((3 + 3 + 2 + 2 + 0) / 5)
    assert found.path_acceptance_rate == close((10 - 5) / 10)
    # Accepted 3 of 3, 0 of 3, 1 of 2, 2 of 2, 0 of 0: 4 drafted position 1, and 3 of those that
    # accepted it position 2, and 1 of those position 3.
    assert found.position_acceptance == [close(3 / 4), close(2 / 3), 1.0]
    assert found.beam_diversity == close((6 + 3 + 2 + 4) / (BEAM_WIDTH * 10))
    with pytest.raises(ValueError, match="accepted = 2 outside"):
        summarize([first, whole, change(short, draft_len=1), none], requests(), BEAM_WIDTH, 3)
    with pytest.raises(ValueError, match="draft_len = 4 outside"):
        summarize([first, change(whole, draft_len=4)], requests(), BEAM_WIDTH, DRAFT_LEN)


def test_position_that_no_step_reached_is_missing_not_zero():
    one = [StepRecord(0, 0.0, 1, 1, 1, 1, 0, 0, ["a"], [4], [0], [1])]
    served = [RequestRecord("a", "none", 1, [1, 2], "length", 0.0, [1.0, 2.0], [1, 1])]
    assert summarize(one, served, 1, 3).position_acceptance == [0.0, None, None]


def test_tree_nodes_and_diversity(metrics):
    mean = (7 + 4 + 5 + 7 + 6) / 5
    assert metrics.tree_nodes_mean == close(mean)
    assert metrics.beam_diversity == close((mean - 1) / 6)


def test_throughput(metrics):
    assert metrics.duration_s == close(0.4)
    assert metrics.output_tokens_per_s == close(13 / 0.4)
    assert metrics.output_tokens_per_s_per_user == pytest.approx((6 / 0.3 + 7 / 0.4) / 2)


def test_latencies(metrics):
    assert metrics.ttft_ms.p50 == pytest.approx(100)
    tpot = [200 / 5, 300 / 6]
    assert metrics.tpot_ms.p50 == pytest.approx(45)
    assert metrics.tpot_ms.p95 == pytest.approx(tpot[0] + 0.95 * (tpot[1] - tpot[0]))
    assert metrics.itl_ms.mean == pytest.approx(100)
    assert metrics.e2e_ms.mean == pytest.approx(350)
    assert metrics.e2e_ms.p99 == pytest.approx(399)


def test_time_share_sums_to_one(metrics):
    share = metrics.time_share  # of 40 ms
    assert (share.draft, share.verify, share.accept, share.host) == (
        close(5 / 40), close(27 / 40), close(3 / 40), close(5 / 40),
    )  # fmt: skip
    assert metrics.step_ms_mean == close(10)


def test_prefill_and_tree_are_part_of_the_step():
    split = [change(step, prefill_ms=4.0, tree_ms=1.0) for step in steps()]
    metrics = summarize(split, requests(), BEAM_WIDTH, DRAFT_LEN)
    share = metrics.time_share  # of 60 ms
    assert (share.prefill, share.tree, share.verify) == (
        close(16 / 60), close(4 / 60), close(27 / 60),
    )  # fmt: skip
    assert sum(share.model_dump().values()) == close(1)
    assert metrics.step_ms_mean == close(15)


def test_tokens_after_the_stop_count_as_accepted_not_as_committed():
    """The verifier took d1 d2 EOS d4 d5 and a bonus token; the user got d1 d2 EOS."""
    cut = [StepRecord(0, 0.0, 1, 1, 1, 1, 0, 0, ["a"], [6], [5], [3])]
    served = [RequestRecord("a", "none", 1, [9, 1, 2, 3], "stop", 0.0, [1.0, 2.0], [1, 3])]
    metrics = summarize(cut, served, 1, 5)
    assert metrics.acceptance_length == 3
    assert metrics.tree_acceptance_rate == 1
    assert metrics.position_acceptance == [1, 1, 1, 1, 1]


def test_baseline_has_no_rates():
    plain = [StepRecord(0, 0.0, 0, 1, 0, 1, 0, 0, ["a"], [1], [0], [1])]
    served = [RequestRecord("a", "none", 1, [1, 2], "length", 0.0, [1.0, 2.0], [1, 1])]
    metrics = summarize(plain, served, 1, 0)
    assert metrics.acceptance_length == 1
    assert metrics.path_acceptance_rate is None
    assert metrics.tree_acceptance_rate is None
    assert metrics.beam_diversity is None
    assert metrics.position_acceptance == []
    assert metrics.tpot_ms == Percentiles(p50=1000, p95=1000, p99=1000, mean=1000)


def test_pace_of_a_single_emission_is_missing():
    one = [StepRecord(0, 0.0, 1, 1, 1, 1, 0, 0, ["a"], [4], [2], [3])]
    served = [RequestRecord("a", "none", 1, [1, 2, 3, 4], "length", 0.0, [2.0], [4])]
    metrics = summarize(one, served, 1, 3)
    assert metrics.tpot_ms is None
    assert metrics.itl_ms is None
    assert metrics.ttft_ms.p50 == metrics.e2e_ms.p50 == 2000


def test_nothing_served_is_refused():
    with pytest.raises(ValueError, match="nothing was served"):
        summarize(steps(), [], BEAM_WIDTH, DRAFT_LEN)


def test_no_generation_step_is_refused():
    served = [RequestRecord("a", "none", 1, [1], "length", 0.0, [1.0], [1])]
    with pytest.raises(ValueError, match="no generation step"):
        summarize(steps()[:1], served, 1, 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"accepted": [4, 0]}, r"accepted = 4 outside 0 \.\. draft_len 3"),
        ({"accepted": [-1, 0]}, r"accepted = -1 outside"),
        ({"committed": [5, 1]}, r"committed = 5 outside 1 \.\. accepted \+ 1 = 4"),
        ({"committed": [4, 0]}, r"request 'b': committed = 0 outside"),
        ({"tree_nodes": [8, 4]}, r"tree_nodes = 8 outside .* = 7"),
        ({"tree_nodes": [3, 4]}, r"tree_nodes = 3 outside accepted \+ 1 = 4"),
        ({"tree_nodes": [7]}, r"1 tree_nodes for 2 request_ids"),
        ({"request_ids": ["a", "z"]}, r"never finished: \['z'\]"),
        ({"draft_ms": math.nan}, r"draft_ms = nan"),
        ({"verify_ms": -1.0}, r"verify_ms = -1\.0"),
        ({"host_ms": math.inf}, r"host_ms = inf"),
        ({"prefill_ms": -1.0}, r"prefill_ms = -1\.0"),
        ({"tree_ms": math.nan}, r"tree_ms = nan"),
        (
            {"draft_ms": 0.0, "verify_ms": 0.0, "accept_ms": 0.0, "host_ms": 0.0},
            r"step 1: non-positive duration",
        ),
    ],
)
def test_impossible_step_is_refused_by_name(values, message):
    wrong = steps()
    wrong[1] = change(wrong[1], **values)
    with pytest.raises(ValueError, match=message):
        summarize(wrong, requests(), BEAM_WIDTH, DRAFT_LEN)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"arrival_s": 10.1}, r"request 'a': non-positive duration"),
        ({"arrival_s": math.nan}, r"not all finite"),
        ({"emission_s": [10.1, 10.3, 10.2]}, r"non-positive duration"),
        ({"emission_s": [10.1, 10.2]}, r"2 emission_s for 3 emission_tokens"),
        ({"emission_tokens": [1, 5, 0]}, r"has an empty one"),
        ({"emission_tokens": [1, 4, 2]}, r"emitted 7 tokens of 6 in output"),
        ({"emission_s": [], "emission_tokens": [], "output_token_ids": []}, r"need one entry"),
        ({"id": "b"}, r"appear twice: \['b'\]"),
    ],
)
def test_impossible_request_is_refused_by_name(values, message):
    wrong = requests()
    wrong[0] = change(wrong[0], **values)
    with pytest.raises(ValueError, match=message):
        summarize(steps(), wrong, BEAM_WIDTH, DRAFT_LEN)
