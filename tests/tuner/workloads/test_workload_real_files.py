"""The public files themselves, where the shared data folder is present."""

from collections import Counter
from pathlib import Path

import pytest

from tuner.workloads import ShapeRequest, load_workload

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "workloads"


def load_shared(name):
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"shared data file {name} is not on this machine")
    return load_workload(str(path))


def test_mt_bench_serves_80_first_turns_of_8_categories():
    workload = load_shared("mt_bench/question.jsonl")
    assert len(workload.prompts) == 80
    assert set(Counter(p.category for p in workload.prompts).values()) == {10}
    assert len({p.category for p in workload.prompts}) == 8
    assert workload.prompts[0].id == "81"
    assert workload.prompts[0].messages[0].content.startswith("Compose an engaging travel blog")
    assert workload.dropped == ("80 later turns: only the first turn of a question is served",)
    assert workload.gives_acceptance


def test_humaneval_is_read_through_gzip():
    workload = load_shared("humaneval/HumanEval.jsonl.gz")
    assert len(workload.prompts) == 164
    assert workload.prompts[163].id == "HumanEval/163"
    assert {p.category for p in workload.prompts} == {"code"}
    assert workload.dropped == ()


def test_gsm8k_serves_1319_questions():
    workload = load_shared("gsm8k/test.jsonl")
    assert len(workload.prompts) == 1319
    assert {p.category for p in workload.prompts} == {"math"}
    assert workload.prompts[0].messages[0].content.startswith("Janet\u2019s ducks lay 16 eggs")
    assert workload.prompts[1318].id == "line-1319"


def test_sharegpt_serves_500_first_human_turns():
    workload = load_shared("fastchat_dummy_conversation/dummy_conversation.json")
    assert len(workload.prompts) == 500
    assert workload.prompts[0].id == "identity_0"
    assert workload.prompts[0].messages[0].content == "Who are you?"


def test_azure_trace_gives_8819_shapes_to_100_ns():
    workload = load_shared("azure_llm_2023/AzureLLMInferenceTrace_code.csv")
    assert len(workload.shapes) == 8819
    assert workload.shapes[0] == ShapeRequest(0.0, 4808, 10)
    assert workload.shapes[1] == ShapeRequest(0.052, 3180, 8)
    assert workload.shapes[-1] == ShapeRequest(3435.948056, 549, 173)  # no newline at the end
    assert sum(s.input_tokens for s in workload.shapes) == 18_059_974
    assert sum(s.output_tokens for s in workload.shapes) == 245_896
    assert not workload.gives_acceptance
    assert "no text" in workload.reason


def test_mooncake_trace_gives_3993_shapes():
    workload = load_shared("mooncake/synthetic_trace.jsonl")
    assert len(workload.shapes) == 3993
    assert workload.shapes[0] == ShapeRequest(0.0, 40160, 6)
    assert workload.shapes[-1].arrival_s == 1022.025
    assert max(s.input_tokens for s in workload.shapes) == 191_378
    assert sum(s.output_tokens for s in workload.shapes) == 595_432
    assert not workload.gives_acceptance
