from collections import Counter

import pytest

from tuner.errors import BadInput
from tuner.workloads import BUILTIN_CATEGORIES, load_workload


def test_every_category_has_24_distinct_prompts():
    workload = load_workload("builtin")
    assert Counter(p.category for p in workload.prompts) == dict.fromkeys(BUILTIN_CATEGORIES, 24)
    assert len({p.messages[0].content for p in workload.prompts}) == 144
    assert len({p.id for p in workload.prompts}) == 144
    assert workload.gives_acceptance
    assert workload.dropped == ()


def test_the_first_six_prompts_cover_all_categories():
    prompts = load_workload("builtin").prompts
    for start in range(0, 144, 6):
        assert tuple(p.category for p in prompts[start : start + 6]) == BUILTIN_CATEGORIES
    assert [p.id for p in prompts[:7:6]] == ["chat-01", "chat-02"]


def test_prompts_are_single_user_turns():
    for prompt in load_workload("builtin").prompts:
        assert [m.role for m in prompt.messages] == ["user"]
        assert prompt.messages[0].content == prompt.messages[0].content.strip()


@pytest.mark.parametrize("category", ["summarization", "extraction"])
def test_texts_to_read_come_with_the_prompt(category):
    for prompt in load_workload(f"builtin:{category}").prompts:
        instruction, _, text = prompt.messages[0].content.partition("\n\n")
        assert instruction
        assert 60 <= len(text.split()) <= 250


def test_one_or_several_categories_are_chosen_by_name():
    assert {p.category for p in load_workload("builtin:code").prompts} == {"code"}
    mixed = load_workload("builtin:math, code,math")
    assert [p.id for p in mixed.prompts[:3]] == ["math-01", "code-01", "math-02"]
    assert mixed.name == "builtin:math,code"
    assert len(mixed.prompts) == 48


def test_all_categories_by_name_are_the_builtin_workload():
    assert load_workload("builtin:" + ",".join(BUILTIN_CATEGORIES)) == load_workload("builtin")


@pytest.mark.parametrize("spec", ["builtin:poetry", "builtin:code,poetry", "builtin:", "builtin:,"])
def test_unknown_category_names_the_known_ones(spec):
    with pytest.raises(BadInput, match="unknown category") as caught:
        load_workload(spec)
    assert caught.value.value == spec
    assert "builtin:extraction" in caught.value.remedy
