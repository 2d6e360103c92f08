"""Each format on small files made here."""

import gzip
import json

from tuner.workloads import Message, ShapeRequest, load_workload


def lines(*rows):
    return "\n".join(json.dumps(row) for row in rows)


def texts(workload):
    return [p.messages[-1].content for p in workload.prompts]


def test_plain_prompts_keep_id_and_category(write):
    path = write("p.jsonl", lines({"id": "a", "category": "law", "prompt": "Hi"}, {"prompt": "Ho"}))
    workload = load_workload(path)
    assert [(p.id, p.category) for p in workload.prompts] == [("a", "law"), ("line-2", "none")]
    assert texts(workload) == ["Hi", "Ho"]
    assert workload.name == "p.jsonl"


def test_blank_category_falls_back(write):
    rows = lines({"category": "", "prompt": "Hi"}, {"category": None, "prompt": "Ho"})
    assert {p.category for p in load_workload(write("p", rows)).prompts} == {"none"}


def test_question_column_of_a_csv_is_a_prompt(write):
    assert texts(load_workload(write("q.csv", 'id,question\r\n1,"Why, ""so""?"\r\n'))) == [
        'Why, "so"?'
    ]


def test_turns_serve_the_first_and_tell_of_the_others(write):
    path = write(
        "q.json",
        lines(
            {"question_id": 7, "category": "stem", "turns": ["one", "two", "three"]},
            {"question_id": 8, "turns": []},
        ),
    )
    workload = load_workload(path)
    assert [(p.id, p.category) for p in workload.prompts] == [("7", "stem")]
    assert workload.dropped == (
        "8 (line 2): no first turn",
        "2 later turns: only the first turn of a question is served",
    )


def test_sharegpt_skips_what_comes_before_the_human(write):
    talk = [{"from": "system", "value": "s"}, {"from": "human", "value": "Hello"}]
    path = write("s.json", json.dumps([{"id": "x", "conversations": talk}], indent=1))
    workload = load_workload(path)
    assert texts(workload) == ["Hello"]
    assert workload.dropped == ("1 other turns: only the first human turn is served",)


def test_sharegpt_without_a_human_turn_is_dropped_and_listed(write):
    rows = [
        {"id": "bot", "conversations": [{"from": "gpt", "value": "I begin"}]},
        {"id": "ok", "conversations": [{"from": "human", "value": "Hello"}]},
    ]
    workload = load_workload(write("s.json", json.dumps(rows, indent=1)))
    assert texts(workload) == ["Hello"]
    assert workload.dropped == ("bot (line 2): no user turn",)


def test_messages_are_kept_up_to_the_last_user_message(write):
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "?"}],
        },
        {"role": "assistant", "content": None},
    ]
    workload = load_workload(write("m.jsonl", lines({"messages": chat})))
    assert workload.prompts[0].messages == (
        Message("system", "Be brief."),
        Message("user", "Hi"),
        Message("assistant", "Hello"),
        Message("user", "And\n?"),
    )
    assert workload.dropped == ("1 messages after the last user message are not served",)


def test_messages_without_user_or_with_images_are_dropped_and_listed(write):
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    rows = lines(
        {"messages": [{"role": "assistant", "content": "Hello"}]},
        {"id": "pic", "messages": [{"role": "user", "content": image}]},
        {"messages": [{"role": "user", "content": "Hi"}]},
    )
    workload = load_workload(write("m.jsonl", rows))
    assert texts(workload) == ["Hi"]
    assert workload.dropped == (
        "line-1 (line 1): no user turn",
        "pic (line 2): content that is not text",
    )


def test_long_lists_of_dropped_rows_are_cut(write):
    rows = [{"prompt": ""}] * 25 + [{"prompt": "x"}]
    dropped = load_workload(write("p.jsonl", lines(*rows))).dropped
    assert len(dropped) == 21
    assert dropped[-1] == "and 5 more empty prompts"


def test_azure_rows_are_ordered_and_empty_requests_dropped(write):
    text = (
        "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2024-05-10 00:00:01.5000001+00:00,5,2\r\n"
        "2024-05-10 00:00:01+00:00,7,3\r\n"
        "2024-05-10 00:00:02,0,3\r\n"
        "2024-05-10 02:00:03.5+02:00,8,4"
    )
    workload = load_workload(write("a.txt", text))
    assert workload.shapes == (
        ShapeRequest(0.0, 7, 3),
        ShapeRequest(0.5000001, 5, 2),
        ShapeRequest(2.5, 8, 4),
    )
    assert workload.dropped == ("line 4: 0 input, 3 output tokens",)


def test_format_and_gzip_are_told_by_content_not_suffix(write):
    row = lines({"timestamp": 250, "input_length": 5, "output_length": 6})
    workload = load_workload(write("trace.txt", gzip.compress(row.encode())))
    assert workload.shapes == (ShapeRequest(0.0, 5, 6),)


def test_byte_order_mark_and_crlf_are_accepted(write):
    path = write("p.jsonl", '\ufeff{"prompt": "a"}\r\n\r\n{"prompt": "b"}\r\n')
    assert texts(load_workload(path)) == ["a", "b"]


def test_line_separator_inside_a_string_does_not_end_the_line(write):
    assert texts(load_workload(write("p", '{"prompt": "a\u2028b"}'))) == ["a\u2028b"]


def test_content_hash_is_of_the_content_alone(write):
    one = load_workload(write("one.jsonl", '{"id": "a", "prompt": "Gr\u00fc\u00dfe"}'))
    same = load_workload(write("two.json", '[{"prompt": "Gr\\u00fc\\u00dfe",\n "id": "a"}]'))
    other = load_workload(write("one.jsonl", '{"id": "a", "prompt": "Gruesse"}'))
    assert one.content_hash == same.content_hash
    assert one.content_hash != other.content_hash
    assert one.content_hash == "a217f53904f31ad1e5fa6367f2ab05896830971ab536018851ae9d98e6e0edae"
