import pandas as pd
import pytest
from measured import BEAM_WIDTH, DRAFT_LEN, requests, steps, trial_result

from profiles.anatomy import step_anatomy
from profiles.metrics import summarize
from profiles.records import DeviceLimits, ModelShape, TrialConfig
from profiles.roofline import NoRoofline, Roofline, roofline
from profiles.trial_folder import TrialFolder
from profiles.verify_curve import free_until, verify_curve, verify_ms_at

SHAPE = ModelShape(
    layers=2, hidden_size=8, intermediate_size=16, heads=2, kv_heads=1, head_dim=4, vocab_size=9,
    linear_parameters=1000, weights_read_bytes=4000, embedding_row_bytes=16, kv_bytes_per_token=32,
)  # fmt: skip
STEPS, REQUESTS = pd.DataFrame(steps()), pd.DataFrame(requests())
BYTES = 3 * 4000 + 32 * 32 + 29 * (16 + 2 * 32)  # passes, context tokens, nodes
FLOP = 2 * 1000 * 29 + 4 * 2 * 2 * 4 * (7 * 11 + 4 * 9 + 5 * 13 + 7 * 13 + 6 * 15)


def limits(read: float = 4e6, matmul: float = 4e7, **changes):
    values = {"device": "cuda", "matmul": "bf16", "read_bytes_per_s": read}
    return DeviceLimits(**values | {"matmul_flop_per_s": matmul} | changes)


def trial(number=0, verify_ms=6.5, nodes=None, config=None, baseline_ms=None, **changes):
    """A trial with shape and limits, whose median verify took `verify_ms`."""
    metrics = summarize(steps(), requests(), BEAM_WIDTH, DRAFT_LEN)
    anatomy = step_anatomy([(steps(), requests())])
    values = {
        "config": TrialConfig(beam_width=BEAM_WIDTH, draft_len=DRAFT_LEN, **config or {}),
        "metrics": metrics.model_copy(update={"tree_nodes_mean": nodes or metrics.tree_nodes_mean}),
        "anatomy": with_verify(anatomy, verify_ms),
        "baseline_anatomy": with_verify(anatomy, baseline_ms) if baseline_ms else None,
        "shape": SHAPE,
        "limits": limits(),
    }
    return trial_result(number).model_copy(update=values | changes)


def with_verify(anatomy, p50_ms):
    verify = anatomy.phases["verify"].model_copy(update={"p50_ms": p50_ms})
    return anatomy.model_copy(update={"phases": {**anatomy.phases, "verify": verify}})


def found(result, siblings=()) -> Roofline:
    answer = roofline(result, STEPS, REQUESTS, siblings)
    assert isinstance(answer, Roofline)
    return answer


def test_bytes_and_flop_of_a_pass_by_hand():
    seen = found(trial())
    assert (seen.steps, seen.sequences) == (3, pytest.approx(5 / 3))
    assert seen.tree_nodes == pytest.approx(29 / 5)
    assert seen.context_tokens == pytest.approx((4 + 5 + 8 + 6 + 9) / 5)
    assert seen.verify_ms == pytest.approx(19 / 3)
    assert seen.bytes_read == pytest.approx(BYTES / 3)
    assert seen.flop == pytest.approx(FLOP / 3)
    assert seen.intensity_flop_per_byte == pytest.approx(FLOP / BYTES)
    assert seen.achieved_bytes_per_s == pytest.approx(BYTES / 19e-3)
    assert seen.achieved_flop_per_s == pytest.approx(FLOP / 19e-3)


def test_the_slower_side_binds():
    memory = found(trial(limits=limits(read=1e6, matmul=1e9)))
    assert memory.bound == "memory"
    assert memory.limit_share == memory.read_share == pytest.approx(BYTES / 1e6 / 19e-3)
    compute = found(trial(limits=limits(read=1e9, matmul=5e6)))
    assert compute.bound == "compute"
    assert compute.limit_share == compute.matmul_share == pytest.approx(FLOP / 5e6 / 19e-3)
    assert compute.intensity_flop_per_byte > compute.ridge_flop_per_byte
    assert memory.note is compute.note is None


def test_faster_than_the_limits_is_said_not_clipped():
    seen = found(trial(limits=limits(read=1e5)))
    assert seen.limit_share > 1
    assert "a cache held" in seen.note


def test_nodes_are_free_until_computing_takes_as_long_as_reading():
    seen = found(trial())
    nodes, sequences, context = (
        seen.free_until_nodes_by_limits,
        seen.sequences,
        seen.context_tokens,
    )
    read_s = (4000 + sequences * (context * 32 + nodes * (16 + 64))) / 4e6
    compute_s = sequences * nodes * (2000 + 64 * (context + nodes)) / 4e7
    assert read_s == pytest.approx(compute_s)
    assert seen.free_nodes_by_limits == pytest.approx(max(0, nodes - seen.tree_nodes))
    assert found(trial(limits=limits(matmul=1e5))).free_nodes_by_limits == 0


def test_trials_of_the_run_say_until_when_nodes_were_free():
    others = [trial(1, 6.6, nodes=12.0), trial(2, 7.2, nodes=24.0), trial(3, 9.9, nodes=40.0)]
    seen = found(trial(baseline_ms=6.4), others)
    assert [(p.trial, p.tree_nodes) for p in seen.measured] == [
        (0, 1.0), (0, pytest.approx(5.8)), (1, 12.0), (2, 24.0), (3, 40.0),
    ]  # fmt: skip
    assert (seen.free_until_nodes_measured, seen.costly_nodes_measured) == (12.0, 24.0)
    assert seen.free_nodes_measured == pytest.approx(12 - 5.8)


def test_only_trials_that_differ_in_their_trees_are_compared():
    others = [
        trial(1, config={"batch_size": 8}),
        trial(2, precision="fp8"),
        trial(3, device="another"),
        trial(4, anatomy=None),
        trial(5, nodes=9.0),
    ]
    assert [p.trial for p in verify_curve(trial(), others)] == [0, 5]


def test_one_tree_alone_says_nothing_of_others():
    seen = found(trial())
    assert seen.free_until_nodes_measured is seen.free_nodes_measured is None
    points = verify_curve(trial(baseline_ms=6.4))
    assert free_until(points) == (pytest.approx(5.8), None)
    assert free_until([]) == (None, None)
    assert verify_ms_at(points, 3.4) == pytest.approx(6.45)
    assert verify_ms_at(points, 6.0) is verify_ms_at(points, 0.5) is verify_ms_at([], 1.0) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shape": None}, "no model shape"),
        ({"limits": None}, "no model shape"),
        (
            {"limits": limits(read_bytes_per_s=None, reason="memory is short")},
            "memory is short",
        ),
    ],
)
def test_where_it_does_not_apply_it_says_why(changes, reason):
    answer = roofline(trial(**changes), STEPS, REQUESTS)
    assert isinstance(answer, NoRoofline) and reason in answer.reason


def test_without_steps_there_is_none(tmp_path):
    folder = TrialFolder(tmp_path / "0", 0)
    answer = roofline(trial(), folder.steps(), folder.requests())
    assert isinstance(answer, NoRoofline) and "no step verified" in answer.reason


def test_tables_from_disk_and_rounds_that_count_from_zero_give_the_same(tmp_path):
    folder = TrialFolder(tmp_path / "0", 0)
    folder.write_steps(steps())
    folder.write_requests(requests())
    assert roofline(trial(), folder.steps(), folder.requests()) == found(trial())
    again = STEPS.assign(request_ids=[[f"{i}2" for i in ids] for ids in STEPS["request_ids"]])
    both = pd.concat([STEPS, again], ignore_index=True)
    served = pd.concat([REQUESTS, REQUESTS.assign(id=REQUESTS["id"] + "2")])
    twice = roofline(trial(), both, served)
    assert isinstance(twice, Roofline) and twice.steps == 6
    assert twice.bytes_read == pytest.approx(BYTES / 3)
