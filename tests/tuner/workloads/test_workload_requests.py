import json

import pytest

from profiles.records import WorkloadSpec
from tuner.errors import BadInput
from tuner.workloads import SHAPE_ONLY_CATEGORY, HFTokenizer, build_requests, load_workload


@pytest.fixture
def prompts(write):
    def _prompts(*texts):
        rows = [json.dumps({"id": f"p{i}", "prompt": text}) for i, text in enumerate(texts)]
        return load_workload(write("p.jsonl", "\n".join(rows)))

    return _prompts


@pytest.fixture
def trace(write):
    def _trace(*lengths):
        rows = [
            json.dumps({"timestamp": i, "input_length": read, "output_length": written})
            for i, (read, written) in enumerate(lengths)
        ]
        return load_workload(write("t.jsonl", "\n".join(rows)))

    return _trace


def test_requests_carry_what_the_spec_asks_for(prompts, word_tokenizer):
    spec = WorkloadSpec(requests=2, max_new_tokens=9, temperature=0.5)
    batch = build_requests(prompts("a b", "b c", "d"), word_tokenizer, spec, 8)
    assert [(r.id, r.prompt_token_ids) for r in batch.requests] == [
        ("p0", (10, 11)),
        ("p1", (11, 12)),
    ]
    assert {r.max_new_tokens for r in batch.requests} == {9}
    assert {r.temperature for r in batch.requests} == {0.5}
    assert {r.stop_token_ids for r in batch.requests} == {frozenset({1, 2})}
    assert batch.requests[0].category == "none"
    assert batch.rendered_first == "a b"
    assert batch.dropped == ()


def test_too_long_prompts_are_dropped_with_both_numbers(prompts, word_tokenizer):
    batch = build_requests(prompts("a b c", "a b"), word_tokenizer, WorkloadSpec(requests=1), 2)
    assert [r.id for r in batch.requests] == ["p1"]
    assert batch.dropped == ("p0: 3 tokens, allowed are 2",)
    assert batch.rendered_first == "a b"


def test_a_chat_that_the_template_refuses_is_dropped(write, word_tokenizer):
    chats = [
        {
            "id": "s",
            "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}],
        },
        {"id": "u", "messages": [{"role": "user", "content": "y"}]},
    ]
    workload = load_workload(write("m.json", json.dumps(chats)))
    batch = build_requests(workload, word_tokenizer, WorkloadSpec(requests=1), 9)
    assert [r.id for r in batch.requests] == ["u"]
    assert batch.dropped == ("s: no system role here",)


def test_too_few_prompts_are_repeated_under_distinct_ids(prompts, word_tokenizer):
    batch = build_requests(prompts("a", "b"), word_tokenizer, WorkloadSpec(requests=5), 8)
    assert [r.id for r in batch.requests] == ["p0", "p1", "p0#2", "p1#2", "p0#3"]
    assert batch.requests[2].prompt_token_ids == batch.requests[0].prompt_token_ids
    assert batch.dropped == ("2 distinct prompts for 5 requests: they are repeated in order",)


def test_ids_that_a_file_uses_twice_become_distinct(write, word_tokenizer):
    rows = '{"id": "a", "prompt": "x"}\n{"id": "a#2", "prompt": "y"}\n{"id": "a", "prompt": "z"}'
    batch = build_requests(
        load_workload(write("p", rows)), word_tokenizer, WorkloadSpec(requests=4), 8
    )
    assert len({r.id for r in batch.requests}) == 4


def test_nothing_that_fits_is_bad_input(prompts, word_tokenizer):
    with pytest.raises(BadInput, match=r"shorter prompts.* p0: 3 tokens, allowed are 2"):
        build_requests(prompts("a b c"), word_tokenizer, WorkloadSpec(), 2)


def test_no_room_for_any_prompt_is_bad_input(prompts, word_tokenizer):
    with pytest.raises(BadInput, match="lower max_new_tokens"):
        build_requests(prompts("a"), word_tokenizer, WorkloadSpec(), 0)


def test_shapes_become_random_prompts_of_the_traced_lengths(trace, word_tokenizer):
    spec = WorkloadSpec(requests=2, max_new_tokens=8, seed=3)
    batch = build_requests(trace((5, 3), (9, 99), (4, 20)), word_tokenizer, spec, 8)
    assert [len(r.prompt_token_ids) for r in batch.requests] == [5, 4]
    assert [r.max_new_tokens for r in batch.requests] == [3, 8]
    assert {r.category for r in batch.requests} == {SHAPE_ONLY_CATEGORY}
    assert {r.stop_token_ids for r in batch.requests} == {frozenset()}
    assert batch.dropped == (
        "trace-2: 9 tokens, allowed are 8",
        "arrival times: requests are served as soon as the batch has a free place",
        "1 outputs are cut to max_new_tokens = 8",
    )
    assert len(batch.rendered_first.split()) == 5


def test_random_prompts_follow_the_seed(trace, word_tokenizer):
    def first(seed):
        spec = WorkloadSpec(requests=1, seed=seed)
        return build_requests(trace((50, 3)), word_tokenizer, spec, 64).requests[0].prompt_token_ids

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_random_prompts_hold_no_special_token(trace, make_model):
    tokenizer = HFTokenizer(make_model())  # puts <s> (id 0) before every text
    batch = build_requests(trace((5000, 3)), tokenizer, WorkloadSpec(requests=1), 5000)
    assert min(batch.requests[0].prompt_token_ids) > 2
