"""A small causal LM as drafter: made of the base model's layers, checked, trained."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from tests.tuner.engines.drafters.conftest import answers_for, counts, save_tokenizer
from tests.tuner.engines.tiny import save_tiny_llama
from tuner.engines.redrafter.checkpoint import load_llama, save_llama
from tuner.engines.redrafter.drafters import load_draft_method
from tuner.engines.redrafter.drafters.causal_lm_training import (
    CausalLMSpec,
    thin_out,
    train_causal_lm,
)
from tuner.engines.redrafter.drafters.walk import walk
from tuner.engines.redrafter.linear import compute_path
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.errors import BadInput

COMPUTE = compute_path("fp32", torch.device("cpu"))


def load(tiny, folder):
    return load_draft_method(str(folder), tiny.base, tiny.model_dir, COMPUTE)


def test_another_tokenizer_is_refused(tiny, tmp_path):
    folder = save_tiny_llama(tmp_path / "other", vocab=30)
    save_tokenizer(folder, 30)
    with pytest.raises(BadInput, match="30 tokens, not 24"):
        load(tiny, folder)


def test_the_same_words_under_other_ids_are_refused(tiny, tmp_path):
    folder = save_tiny_llama(tmp_path / "other")
    text = (tiny.model_dir / "tokenizer.json").read_text()
    swapped = json.loads(text)
    words = swapped["model"]["vocab"]
    words["w1"], words["w2"] = words["w2"], words["w1"]
    (folder / "tokenizer.json").write_text(json.dumps(swapped))
    with pytest.raises(BadInput, match="'w1'"):
        load(tiny, folder)


def test_a_missing_or_broken_tokenizer_is_refused(tiny, tmp_path):
    folder = save_tiny_llama(tmp_path / "other")
    with pytest.raises(BadInput, match=r"without tokenizer\.json"):
        load(tiny, folder)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(BadInput, match="no tokenizer"):
        load(tiny, folder)


def test_a_vocabulary_padded_further_proposes_known_tokens_only(tiny, tmp_path):
    folder = save_tiny_llama(tmp_path / "padded", vocab=64)
    save_tokenizer(folder)
    method = load(tiny, folder)
    answers = answers_for(tiny, method)
    walked = counts(answers, walk(method, answers, 30, 2))
    assert [committed for _, committed in walked] == [23] * len(tiny.pairs)
    method.reserve(1, 40)
    method.join(1, [1, 2], torch.empty(1, 0))
    beams = method.propose(torch.tensor([1]), torch.tensor([2]), torch.empty(1, 0), 30, 2)
    assert beams.max() < 24


def test_a_vocabulary_too_small_for_its_tokenizer_is_refused(tiny, tmp_path):
    folder = save_tiny_llama(tmp_path / "small", vocab=16)
    save_tokenizer(folder)
    with pytest.raises(BadInput, match="vocabulary of 24"):
        load(tiny, folder)


def test_positions_out_of_reach_are_refused(tiny):
    with pytest.raises(BadInput, match="256 positions"):
        tiny.load("causal LM").reserve(1, 257)


def test_a_place_of_nobody_gets_its_true_token(tiny):
    method = tiny.load("causal LM")
    method.reserve(2, 60)
    beams = method.propose(torch.tensor([0]), torch.tensor([5]), torch.empty(1, 0), 2, 3)
    assert beams.tolist() == [[[5] * 4] * 2]


def test_layers_of_the_base_model_are_saved_as_a_checkpoint_of_their_own(tiny, tmp_path):
    whole = load_llama(tiny.model_dir)
    save_llama(thin_out(whole, (1,)), tmp_path / "small", tiny.model_dir)
    small = load_llama(tmp_path / "small")
    assert small.config.num_layers == 1
    for name, tensor in small.layers[0].state_dict().items():
        assert torch.equal(tensor, whole.layers[1].state_dict()[name].bfloat16()), name
    with pytest.raises(BadInput, match="layers"):
        thin_out(whole, (2,))


def test_training_beats_the_untrained_layers(tiny, tmp_path):
    pairs = [(prompt, np.array(answer, dtype=np.int32)) for prompt, answer in tiny.pairs]
    AnswerRows.join(pairs).save(tmp_path / "rows.safetensors")
    save_llama(thin_out(load_llama(tiny.model_dir), (0,)), tmp_path / "before", tiny.model_dir)
    spec = CausalLMSpec(
        tiny.model_dir, tmp_path / "rows.safetensors", tmp_path / "after", layers=(0,),
        tokens_per_step=256, max_steps=100, learning_rate=1e-2,
    )  # fmt: skip
    report = train_causal_lm(spec)
    assert report.steps == 100
    steps = {}
    for name in ("before", "after"):
        method = load(tiny, tmp_path / name)
        steps[name] = len(walk(method, answers_for(tiny, method), 1, 4).row)
    assert steps["after"] < 0.7 * steps["before"]
