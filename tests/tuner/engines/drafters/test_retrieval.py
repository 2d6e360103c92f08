"""Drafts by looking up, worked by hand."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from tuner.engines.redrafter.drafters.retrieval import RetrievalDraft
from tuner.engines.redrafter.drafters.suffix_index import (
    LONGEST,
    SuffixIndex,
    matches_within,
)
from tuner.engines.redrafter.drafters.text_store import read_store
from tuner.errors import BadInput

NOTHING = torch.empty(1, 0)


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, dtype=np.int32)


def propose(method, tokens, beam_width, draft_len, place=1):
    beams = method.propose(
        torch.tensor([place]), torch.tensor(tokens[-1:]), NOTHING, beam_width, draft_len
    )
    assert beams.shape == (1, beam_width, 1 + draft_len)
    return beams[0].tolist()


def retrieval(tokens, store=None):
    method = RetrievalDraft(store)
    method.reserve(2, 64)
    method.join(1, tokens, NOTHING)
    return method


def test_the_longest_match_first_then_the_most_recent():
    #        0  1  2  3  4  5  6  7  8  9 10 11 12
    text = [7, 8, 1, 2, 8, 3, 4, 8, 5, 6, 9, 7, 8]
    # `7 8` stood at 0; `8` alone at 4 and, more recently, at 7.
    expected = [[8, 1, 2, 8], [8, 5, 6, 9], [8, 3, 4, 8]]
    assert propose(retrieval(text), text, 3, 3) == expected


def test_too_few_continuations_are_filled_with_copies():
    text = [7, 8, 1, 2, 7, 8]
    assert propose(retrieval(text), text, 3, 2) == [[8, 1, 2]] * 3


def test_equal_continuations_count_once():
    text = [5, 1, 2, 6, 5, 1, 2, 7, 5, 3, 4, 9, 5]
    assert propose(retrieval(text), text, 3, 2) == [[5, 3, 4], [5, 1, 2], [5, 1, 2]]


def test_a_text_that_repeats_itself_goes_round():
    text = [1, 2, 3, 1, 2, 3]
    assert propose(retrieval(text), text, 1, 7) == [[3, 1, 2, 3, 1, 2, 3, 1]]


def test_what_was_written_is_found_too():
    method = retrieval([1, 2, 3])
    assert propose(method, [3], 2, 2) == [[3, 3, 3]] * 2, "nothing is known yet"
    method.observe([1], [[4, 5]], NOTHING)
    method.observe([1], [[3]], NOTHING)
    assert propose(method, [3], 1, 2) == [[3, 4, 5]]


def test_a_prompt_of_one_token_and_a_place_of_nobody():
    method = retrieval([4, 6])
    assert propose(method, [6], 2, 3) == [[6, 6, 6, 6]] * 2
    assert propose(method, [0], 2, 1, place=0) == [[0, 0]] * 2


def test_places_are_apart_and_can_be_taken_again():
    method = retrieval([1, 2, 1])
    method.join(2, [1, 3, 1], NOTHING)
    both = method.propose(torch.tensor([1, 2]), torch.tensor([1, 1]), NOTHING, 1, 1)
    assert both.tolist() == [[[1, 2]], [[1, 3]]]
    method.leave(1)
    method.join(1, [1, 4, 1], NOTHING)
    assert propose(method, [1], 1, 1) == [[1, 4]]


def test_the_store_is_asked_and_the_text_goes_first_among_equals():
    store = SuffixIndex([ids(7, 8, 9, 1, 2), ids(6, 7, 8, 5), ids(8, 4)])
    text = [3, 7, 8, 2, 7, 8]
    # Equal agreement `7 8`: own text, then the later document; `8` alone is too short for a store.
    assert propose(retrieval(text, store), text, 4, 1) == [[8, 2], [8, 5], [8, 9], [8, 9]]
    longer = [6, 7, 8]
    assert propose(retrieval(longer, store), longer, 2, 2)[0] == [8, 5, 5], "ends with its document"


def slow_matches(tokens, text, last):
    """Every end position before `last` with its agreement, the plain way."""
    found = []
    for end in range(last):
        length = 0
        while (
            length < min(LONGEST, len(text), end + 1)
            and tokens[end - length] == text[len(text) - 1 - length]
        ):
            length += 1
        if length:
            found.append((length, end))
    return sorted(found, key=lambda pair: (-pair[0], -pair[1]))


def test_matches_equal_a_slow_search():
    draw = random.Random(0)
    for _ in range(30):
        text = ids(*(draw.randrange(3) for _ in range(draw.randint(1, 60))))
        expected = slow_matches(text, text, len(text) - 1)
        got = [(m.length, len(text) - 1 - len(m.following)) for m in matches_within(text)]
        assert got == expected


def test_a_store_finds_what_a_slow_search_finds():
    draw = random.Random(1)
    for _ in range(30):
        document = ids(*(draw.randrange(3) for _ in range(50)))
        index, text = SuffixIndex([document]), ids(*(draw.randrange(3) for _ in range(20)))
        expected = [pair for pair in slow_matches(document, text, 50) if pair[0] >= 2]
        got = [(m.length, 49 - len(m.following)) for m in index.matches(text, 2)]
        assert got == expected


def test_a_store_reads_text_and_json_lines(tmp_path):
    (tmp_path / "b.txt").write_text("plain text\nof two lines", encoding="utf-8")
    rows = [{"id": 3, "prompt": "one", "turns": ["two", "three"]}, {"text": "four"}]
    (tmp_path / "a.data").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert read_store(tmp_path) == ["one", "two", "three", "four", "plain text\nof two lines"]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"good\nb\xe4d", "line 2"),
        ("text".encode("utf-16"), "UTF-16"),
        (b'{"text": "a"}\nno row', "line 2"),
        (b" \n", "no text"),
        (None, "does not exist"),
    ],
)
def test_a_bad_store_is_refused_by_name(tmp_path, content, named):
    path = tmp_path / "store.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read_store(path)
    assert caught.value.field == "drafter"
    assert named in str(caught.value) and "store.txt" in str(caught.value)
