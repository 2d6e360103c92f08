"""A drafter that does not fit its base model, or is damaged, is refused by name."""

from __future__ import annotations

import json
import pickle

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file

from tests.tuner.engines.tiny import HIDDEN, VOCAB, edit_config, save_tiny_drafter, save_tiny_llama
from tuner.engines.redrafter.beam import beam_search
from tuner.engines.redrafter.checkpoint import (
    export_for_apple,
    load_drafter,
    load_llama,
    read_drafter,
)
from tuner.engines.redrafter.fit import tokenizer_fingerprint
from tuner.errors import BadInput


def save_tokenizer(folder, tokens):
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {token: number for number, token in enumerate(tokens)}
    model = tokenizers.models.WordLevel(vocabulary, unk_token=tokens[0])
    tokenizers.Tokenizer(model).save(str(folder / "tokenizer.json"))


def words(count):
    return [f"w{number}" for number in range(count)]


@pytest.fixture
def llama(tmp_path):
    """A base model of 24 rows, 20 of which its tokenizer uses."""
    folder = save_tiny_llama(tmp_path / "llama")
    save_tokenizer(folder, words(20))
    return folder


def fit(llama, folder):
    return load_drafter(folder, load_llama(llama).config)


@pytest.fixture
def apple(tmp_path):
    ours = save_tiny_drafter(tmp_path / "ours", exit_dim=40, scored_tokens=50)
    export_for_apple(read_drafter(ours), tmp_path / "apple")
    return tmp_path / "apple"


def edit_weights(folder, change):
    (path,) = folder.glob("*.safetensors")
    state = load_file(path)
    change(state)
    save_file(state, path)


def test_another_tokenizer_is_refused_by_its_fingerprint(llama, tmp_path):
    other = words(20)
    other[3], other[4] = other[4], other[3]
    save_tokenizer(tmp_path / "other", other)
    drafter = save_tiny_drafter(tmp_path / "drafter")
    edit_config(drafter, tokenizer_sha256=tokenizer_fingerprint(tmp_path / "other"))
    with pytest.raises(BadInput, match="it was trained with another tokenizer"):
        fit(llama, drafter)
    edit_config(drafter, tokenizer_sha256=tokenizer_fingerprint(llama))
    assert fit(llama, drafter).config.tokenizer_sha256 == tokenizer_fingerprint(llama)


def test_another_tokenizer_is_refused_by_the_file_beside_it(llama, apple):
    save_tokenizer(apple, [*words(19), "other"])
    with pytest.raises(BadInput, match="it was trained with another tokenizer"):
        fit(llama, apple)
    save_tokenizer(apple, words(20))
    fit(llama, apple)


def test_a_fingerprint_is_of_content_not_of_spelling(tmp_path):
    save_tokenizer(tmp_path / "one", words(20))
    save_tokenizer(tmp_path / "other", words(20))
    path = tmp_path / "other" / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7))
    assert tokenizer_fingerprint(tmp_path / "one") == tokenizer_fingerprint(tmp_path / "other")
    assert tokenizer_fingerprint(tmp_path) is None


@pytest.mark.parametrize("rows", [20, 32])
def test_a_vocabulary_may_differ_by_padding(llama, tmp_path, rows):
    drafter = fit(llama, save_tiny_drafter(tmp_path / "drafter", vocab=rows))
    assert drafter.config.vocab_size == VOCAB
    assert drafter.config.draft_vocab_size == len(drafter.draft_vocab) == min(rows, VOCAB)
    base = load_llama(llama)
    context, tokens = torch.randn(4, HIDDEN), torch.arange(4)
    with torch.no_grad():
        beams = beam_search(drafter, base.embed_tokens, tokens, context, 30, 3)
    assert int(beams.max()) < VOCAB


@pytest.mark.parametrize("rows", [19, 16])
def test_a_vocabulary_may_not_differ_by_more_than_padding(llama, tmp_path, rows):
    drafter = save_tiny_drafter(tmp_path / "drafter", vocab=rows)
    with pytest.raises(BadInput, match=f"vocab_size is {rows}, .* 24, and more than padding: 20"):
        fit(llama, drafter)


def test_padding_is_not_assumed_without_a_tokenizer(llama, tmp_path):
    (llama / "tokenizer.json").unlink()
    with pytest.raises(BadInput, match="its vocab_size is 32, the base model's is 24"):
        fit(llama, save_tiny_drafter(tmp_path / "drafter", vocab=32))


def test_a_hidden_size_of_another_base_is_named_in_apples_layout_too(llama, tmp_path):
    ours = save_tiny_drafter(tmp_path / "ours", hidden_size=48, exit_dim=40)
    export_for_apple(read_drafter(ours), tmp_path / "apple")
    with pytest.raises(BadInput, match="its hidden_size is 48, the base model's is 32"):
        fit(llama, tmp_path / "apple")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_numbers(llama, apple, value):
    edit_weights(apple, lambda state: state["rnn_u.bias"].__setitem__(3, value))
    with pytest.raises(BadInput, match=r"tensor 'rnn_u\.bias' holds NaN or infinity"):
        fit(llama, apple)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("input_proj.bias"), r"lacks tensors \['input_proj.bias'\]"),
        (lambda s: s.update(gru=torch.ones(1)), r"has unknown \['gru'\]"),
        (
            lambda s: s.update({"lm_head.1.weight": torch.ones(24, 32)}),
            r"'lm_head.1.weight' has shape \[24, 32\], its config.json asks for \[24, 40\]",
        ),
    ],
)
def test_apples_tensors_are_named_as_apple_names_them(llama, apple, change, message):
    edit_weights(apple, change)
    with pytest.raises(BadInput, match=message):
        fit(llama, apple)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rnn": None}, "lacks 'rnn'"),
        ({"exit_dim": "wide"}, "is not a drafter config"),
        ({"first_step": "first"}, "first_step is 'first', not one of"),
    ],
)
def test_apples_config_is_checked(llama, apple, changes, message):
    config = json.loads((apple / "config.json").read_text()) | changes
    kept = {name: value for name, value in config.items() if value is not None}
    (apple / "config.json").write_text(json.dumps(kept))
    with pytest.raises(BadInput, match=message):
        fit(llama, apple)


class Armed:
    """Unpickling it fails the test."""

    def __reduce__(self):
        return pytest.fail, ("a pickle was opened",)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "drafter.pt"])
def test_pickles_are_refused_unopened(llama, apple, name):
    (apple / "model.safetensors").unlink()
    (apple / name).write_bytes(pickle.dumps(Armed()))
    with pytest.raises(BadInput, match=f"holds {name}: pickles are never opened"):
        fit(llama, apple)


def test_a_pickle_called_safetensors_is_not_opened_either(llama, apple):
    (apple / "model.safetensors").write_bytes(pickle.dumps(Armed()))
    with pytest.raises(BadInput, match="is not a readable safetensors file"):
        fit(llama, apple)
