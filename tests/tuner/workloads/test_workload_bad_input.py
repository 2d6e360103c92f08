"""Every wrong file is refused with its name, its line and the way to mend it."""

import gzip

import pytest

from tuner.errors import BadInput
from tuner.workloads import load_workload

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
MOONCAKE = '{"timestamp": 0, "input_length": %s, "output_length": 6}'


def refusal(spec):
    with pytest.raises(BadInput) as caught:
        load_workload(spec)
    assert caught.value.field == "workload"
    assert str(spec) in str(caught.value.value)
    return caught.value


@pytest.mark.parametrize("spec", ["no/such/file.jsonl", "code", "x\0y", "~no-such-user/f", ""])
def test_missing_file_suggests_the_builtin_names(spec):
    assert "builtin:code" in refusal(spec).remedy


def test_folder_and_overlong_name_are_refused(tmp_path):
    assert "directory" in refusal(str(tmp_path)).remedy
    assert "too long" in refusal("x" * 5000).remedy


@pytest.mark.parametrize("content", ["", "  \r\n\n", "\ufeff"])
def test_empty_file(write, content):
    assert "is empty" in refusal(write("e", content)).remedy


@pytest.mark.parametrize("content", ["[]", "[ \n]", AZURE, "just some words\n"])
def test_file_without_rows_lists_the_accepted_formats(write, content):
    assert "holds no rows; accepted are MT-bench" in refusal(write("e", content)).remedy


def test_file_of_which_nothing_is_left_says_why(write):
    error = refusal(write("e", '{"id": "a", "prompt": " "}\n'))
    assert error.remedy == "holds nothing that can be served: a (line 1): empty prompt"


@pytest.mark.parametrize(
    ("content", "line", "remedy"),
    [
        ('{"prompt": "a"}\n{"prompt": \n', 2, "invalid JSON"),
        ('{"prompt": "a"}\n\n{"prompt": "b"', 3, "invalid JSON"),
        ('{"prompt": "a"}\n[1]\n', 2, "holds a list; write one JSON object a line"),
        ('{"prompt": "a"}\nnull\n', 2, "holds missing"),
        ('[{"prompt": "a"},\n{"prompt": }]', 2, "invalid JSON"),
        ('[{"prompt": "a"}\n{"prompt": "b"}]', 2, "`,` or `]` expected, '{' found"),
        ('[{"prompt": "a"},\n', 2, "invalid JSON"),
        ('[{"prompt": "a"}\n', 2, "the end of the file found"),
        ('[{"prompt": "a"},\n7]', 2, "holds a number"),
        ('[{"prompt": "a"}]\n{"prompt": "b"}', 1, "text after the array's `]`"),
        ('{"prompt": ' + "[" * 200_000, 1, "invalid JSON"),
        ('{"text": "a"}', 1, "unrecognised shape; accepted are MT-bench or Spec-Bench"),
        ("a,b\n1,2\n", 2, "unrecognised shape"),
        ('{"prompt": "a"}\n{"text": "b"}', 2, "neither `prompt` nor `question`"),
        ('{"prompt": "a"}\n{"prompt": ["b"]}', 2, "`prompt` must be text, not a list"),
        ('{"prompt": "\\ud800"}', 1, "surrogate"),
        ('{"prompt": "a", "category": 3}', 1, "`category` must be text, not a number"),
        ('{"turns": "a"}', 1, "`turns` must be a list, not text"),
        ('{"turns": [null]}', 1, "`turns` must be text"),
        ('{"turns": ["a"]}\n{"prompt": "a"}', 2, "`turns` must be a list, not missing"),
        ('{"conversations": ["a"]}', 1, "every turn must be"),
        ('{"conversations": [{"from": "human"}]}', 1, "`value` must be text, not missing"),
        ('{"messages": ["a"]}', 1, "every message must be"),
        ('{"messages": [{"role": "user", "content": 3}]}', 1, "`content` must be text"),
        (MOONCAKE % "1.5", 1, "`input_length` must be a whole number of at least 0, not 1.5"),
        (MOONCAKE % "-1", 1, "not -1"),
        (MOONCAKE % "NaN", 1, "not nan"),
        (MOONCAKE % "true", 1, "not True"),
        (AZURE + "yesterday,1,2\n", 2, "must look like 2023-11-16"),
        (AZURE + "2023-13-16 18:17:03,1,2\n", 2, "no date and time"),
        (AZURE + "2023-11-16 18:17:03,x,2\n", 2, "`ContextTokens` must be a whole number"),
        (AZURE + "2023-11-16 18:17:03,1,2\n2023-11-16 18:17:03,1", 3, "the header's 3 columns"),
        (AZURE + '2023-11-16 18:17:03,"1"x,2\n', 2, "invalid CSV"),
    ],
)
def test_wrong_line_is_named(write, content, line, remedy):
    path = write("w.jsonl", content)
    error = refusal(path)
    assert error.value == f"{path} line {line}"
    assert remedy in error.remedy


def test_latin_1_names_byte_and_line(write):
    path = write("l.jsonl", '{"prompt": "a"}\n{"prompt": "é"}'.encode("latin-1"))
    error = refusal(path)
    assert error.value == f"{path} line 2"
    assert error.remedy == "byte 0xe9 is not UTF-8; save the file as UTF-8"


def test_utf_16_is_refused(write):
    assert "UTF-16" in refusal(write("u.jsonl", '{"prompt": "a"}'.encode("utf-16"))).remedy


def test_torn_gzip_is_refused(write):
    whole = gzip.compress(b'{"prompt": "a"}\n' * 50)
    assert "torn" in refusal(write("cut.gz", whole[:-9])).remedy
    assert "torn" in refusal(write("bits.gz", whole[:20] + b"\xff\xff\xff" + whole[23:])).remedy
    assert "torn" in refusal(write("head.gz", whole[:2])).remedy
