from __future__ import annotations

import pytest

from profiles.records import TextCheck, TrialConfig, TrialResult, TrialState, WorkloadSpec
from tuner.errors import BadInput
from tuner.sweep.spec import (
    SearchSpace,
    SweepSpec,
    excess,
    parse_spec,
    read_yaml,
    value_of,
    violations,
)


def test_the_suggested_sweep_has_32_points_and_2_baselines():
    spec = SweepSpec()
    points = list(spec.points())
    assert len(points) == len(set(points)) == 32
    assert [(b.draft_len, b.beam_width, b.batch_size) for b in spec.baselines()] == [
        (0, 1, 1),
        (0, 1, 4),
    ]


def test_without_speculation_the_beam_width_means_nothing():
    spec = SweepSpec()
    assert spec.config(beam_width=8, draft_len=0) == spec.config(beam_width=2, draft_len=0)


def test_the_specs_drafter_is_tried_when_the_space_names_none():
    spec = SweepSpec(drafter="a")
    assert {point.drafter for point in spec.points()} == {"a"}
    spec = SweepSpec(drafter="a", space={"drafter": ["b", None, "retrieval"]})
    assert {point.drafter for point in spec.points()} == {"b", None, "retrieval"}
    assert len(list(spec.points())) == 3 * 32
    assert spec.baselines() == SweepSpec().baselines()


def test_a_vocabulary_means_nothing_to_retrieval_and_without_speculation():
    space = {"drafter": ["b", "retrieval:store"], "draft_vocab_size": [64, 512, None]}
    spec = SweepSpec(space=space)
    points = list(spec.points())
    assert len(points) == len(set(points)) == 32 * (3 + 1)
    sizes = {p.draft_vocab_size for p in points if p.drafter == "retrieval:store"}
    assert sizes == {None}
    assert spec.config(draft_len=0, draft_vocab_size=64, drafter="b") == spec.config(draft_len=0)


def test_a_drafters_precision_means_nothing_to_retrieval_and_without_speculation():
    space = {"drafter": ["b", "retrieval"], "drafter_quantization": [None, "fp8"]}
    spec = SweepSpec(space=space)
    points = list(spec.points())
    assert len(points) == len(set(points)) == 32 * (2 + 1)
    tried = {(p.drafter, p.drafter_quantization) for p in points}
    assert tried == {("b", None), ("b", "fp8"), ("retrieval", None)}
    assert spec.baselines() == SweepSpec().baselines()
    assert spec.config(draft_len=0, drafter_quantization="fp8") == spec.config(draft_len=0)


def test_an_fp8_kv_cache_is_measured_against_its_own_baseline():
    spec = SweepSpec(space=SearchSpace(batch_size=[2], kv_cache_dtype=["auto", "fp8"]))
    assert [(b.batch_size, b.kv_cache_dtype) for b in spec.baselines()] == [(2, "auto"), (2, "fp8")]
    kept = {(p.kv_cache_dtype, p.baseline().kv_cache_dtype) for p in spec.points()}
    assert kept == {("auto", "auto"), ("fp8", "fp8")}
    assert spec.baselines()[1].describe() == "no speculation, batch 2, fp8 KV cache"


def test_bounds_that_bind_nothing_make_no_config_of_their_own():
    space = SearchSpace(
        beam_width=[2],
        draft_len=[2, 4],
        draft_len_min=[None, 1, 3],
        speculate_up_to=[None, 2],
        batch_size=[1, 4],
    )
    points = list(SweepSpec(space=space).points())
    found = {(p.draft_len, p.draft_len_min, p.speculate_up_to, p.batch_size) for p in points}
    lengths = [(2, None), (2, 1), (4, None), (4, 1), (4, 3)]
    loads = [(None, 1), (None, 4), (2, 4)]
    assert len(points) == len(found) == 15
    assert found == {(*length, *load) for length in lengths for load in loads}
    assert SweepSpec(space=space).baselines() == SweepSpec().baselines()
    assert SweepSpec().config(draft_len=0, draft_len_min=1, batch_size=4, speculate_up_to=2) == (
        SweepSpec().config(draft_len=0, batch_size=4)
    )


def test_a_config_is_described_by_what_was_chosen():
    config = TrialConfig(drafter="/a/folder/", draft_vocab_size=512, quantization="fp32")
    words = "beam width 4, draft length 4, batch 1"
    assert config.describe() == f"{words}, fp32, folder, draft vocabulary 512"
    assert TrialConfig().describe() == words
    assert TrialConfig(drafter_quantization="fp8").describe() == f"{words}, fp8 drafter"
    assert TrialConfig(drafter="retrieval").describe() == f"{words}, retrieval"
    assert TrialConfig(drafter="retrieval:/a/b.txt").describe() == f"{words}, retrieval:b.txt"
    assert config.baseline().describe() == "no speculation, batch 1, fp32"
    moving = TrialConfig(draft_len=5, draft_len_min=1, speculate_up_to=8, batch_size=16)
    words = "beam width 4, draft length 1 to 5, batch 16, no drafts for more than 8 at once"
    assert moving.describe() == words
    assert moving.baseline() == TrialConfig(batch_size=16).baseline()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"space": {"drafter": ["a", "a"]}}, r"space.drafter = .*names a value twice"),
        ({"space": {"drafter": [""]}}, r"space.drafter.0 = ''"),
        ({"space": {"draft_vocab_size": [0]}}, r"space.draft_vocab_size.0 = 0"),
        ({"space": {"drafter_quantization": ["int8_sq"]}}, r"drafter_quantization.0 = 'int8_sq'"),
        ({"space": {"beam_width": [0]}}, r"space.beam_width.0 = 0: .*greater than or equal to 1"),
        ({"space": {"draft_len": []}}, r"space.draft_len = \[\]: .*at least 1 item"),
        ({"space": {"batch_size": [4, 4]}}, r"space.batch_size = .*names a value twice"),
        ({"space": {"quantization": ["int3"]}}, r"space.quantization.0 = 'int3'"),
        ({"objective": "speed"}, r"objective = 'speed': .*output_tokens_per_s"),
        ({"limits": {"tpot_ms_p95": -1}}, r"limits.tpot_ms_p95 = -1"),
        ({"trials": 0}, r"trials = 0"),
        ({"trails": 5}, r"trails = 5: Extra inputs are not permitted"),
        ({"workload": {"requests": 0}}, r"workload.requests = 0"),
    ],
)
def test_wrong_fields_are_named_with_their_value(data, message):
    with pytest.raises(BadInput, match=message):
        parse_spec(data, "spec.yaml")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        read_yaml(tmp_path / "none.yaml", "SPEC")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(BadInput, match="cannot be read as YAML"):
        read_yaml(tmp_path / "bad.yaml", "SPEC")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(BadInput, match="must be a mapping"):
        read_yaml(tmp_path / "list.yaml", "SPEC")


def empty_result(**fields) -> TrialResult:
    return TrialResult(
        number=0,
        state=TrialState.COMPLETE,
        config=TrialConfig(),
        config_hash="x",
        workload=WorkloadSpec(),
        started_at="now",
        **fields,
    )


@pytest.mark.parametrize(("precision", "words"), [("fp32", 1), ("bf16", 0)])
def test_text_that_differs_in_fp32_is_never_best(precision, words):
    text = TextCheck(requests=4, equal=3, first_difference="request r1, output token 5")
    found = violations(empty_result(precision=precision, text=text), {})
    assert len(found) == words
    assert all("fp32: request r1, output token 5" in word for word in found)


def test_a_limit_on_what_was_not_measured_is_broken():
    result = empty_result()
    assert violations(result, {"energy_mj_per_token": 5.0}) == [
        "energy_mj_per_token is not measured, wanted at most 5"
    ]
    assert value_of(result, "energy_mj_per_token") is None
    assert excess(result, {"energy_mj_per_token": 5.0}) == {"energy_mj_per_token": 5.0}
