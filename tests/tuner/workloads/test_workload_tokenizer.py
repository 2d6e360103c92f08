import json

import pytest

from tuner.errors import BadInput
from tuner.workloads import HFTokenizer, Message
from tuner.workloads.chat_template import ChatTemplate

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

HELLO = (Message("user", "Hello"),)


def test_chat_template_is_rendered_up_to_the_answer(make_model):
    tokenizer = HFTokenizer(make_model(tokenizer_config={"chat_template": CHATML}))
    text = tokenizer.render(HELLO)
    assert tokenizer.template == "chat"
    assert text == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.encode(text)[0] == 1


def test_bos_of_the_template_is_not_doubled(make_model):
    settings = {
        "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
        "bos_token": {"content": "<s>", "special": True},
        "eos_token": "<|im_end|>",
    }
    tokenizer = HFTokenizer(make_model(tokenizer_config=settings))
    ids = tokenizer.encode(tokenizer.render(HELLO))
    assert ids.count(0) == 1
    assert (ids[0], ids[-1]) == (0, 2)
    assert tokenizer.decode(ids) == "Hello"


def test_model_without_template_joins_by_newlines_and_keeps_its_bos(make_model):
    tokenizer = HFTokenizer(make_model())
    text = tokenizer.render((Message("system", "Be brief."), *HELLO))
    assert tokenizer.template == "none"
    assert text == "Be brief.\nHello"
    ids = tokenizer.encode(text)
    assert ids[0] == 0
    assert len(ids) == 1 + len(text)  # the truncation to 4 in tokenizer.json is off


def test_template_file_goes_before_tokenizer_config(make_model):
    folder = make_model(tokenizer_config={"chat_template": "old"})
    (folder / "chat_template.jinja").write_text("new", encoding="utf-8")
    assert HFTokenizer(folder).render(HELLO) == "new"


def test_default_is_chosen_among_named_templates(make_model):
    named = [{"name": "tool_use", "template": "tool"}, {"name": "default", "template": "plain"}]
    assert (
        HFTokenizer(make_model(tokenizer_config={"chat_template": named})).render(HELLO) == "plain"
    )


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, set()),
        ({"config": {"eos_token_id": 7}}, {7}),
        ({"config": {"eos_token_id": 7}, "generation_config": {"eos_token_id": [8, 9]}}, {8, 9}),
        ({"config": {"eos_token_id": 7}, "generation_config": {}}, {7}),
        ({"config": {"eos_token_id": 7}, "tokenizer_config": {"eos_token": "<|im_end|>"}}, {2, 7}),
        ({"special_tokens_map": {"eos_token": {"content": "<|im_end|>"}}}, {2}),
    ],
)
def test_stop_ids_come_from_all_that_name_them(make_model, files, expected):
    assert HFTokenizer(make_model(**files)).stop_token_ids == expected


def test_folder_without_tokenizer_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match=r"needs a tokenizer\.json"):
        HFTokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("content", ["{", "[1]"])
def test_broken_file_is_named(make_model, name, content):
    folder = make_model()
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        HFTokenizer(folder)
    assert str(caught.value.value).endswith(name)


def render(source, *messages, **special):
    return ChatTemplate(source, special).render(messages or HELLO)


def test_template_that_raises_is_bad_input():
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}ok"
    assert render(source) == "ok"
    with pytest.raises(BadInput, match="no system") as caught:
        render(source, Message("system", "x"), *HELLO)
    assert caught.value.value == "system, user"


def test_template_that_is_no_jinja_is_bad_input():
    with pytest.raises(BadInput, match="cannot be compiled"):
        render("{% for %}")


def test_template_cannot_reach_python():
    with pytest.raises(BadInput, match="refuses this chat"):
        render("{{ messages.__class__.__mro__[1].__subclasses__() }}")


def test_template_extensions_of_transformers_work():
    assert render("{{ strftime_now('%d %b %Y') }}") == "01 Jan 2025"
    assert render("{{ messages[0] | tojson }}") == json.dumps({"role": "user", "content": "Hello"})
    assert render("{% generation %}{{ messages[0].content }}{% endgeneration %}") == "Hello"
    assert (
        render("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}")
        == "1"
    )
    assert render("{{ pad_token }}", pad_token="<pad>") == "<pad>"
    assert render("{% if tools %}x{% endif %}{% if documents is none %}y{% endif %}") == "y"
