"""Apple's drafter checkpoints: written, read back bit for bit, drafting the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from tests.tuner.engines.tiny import HIDDEN, VOCAB, save_tiny_drafter, save_tiny_llama
from tuner.engines.redrafter.apple_layout import RELEASED_DRAFT_LEN, SCORED_TOKENS
from tuner.engines.redrafter.beam import beam_search
from tuner.engines.redrafter.checkpoint import (
    export_for_apple,
    load_drafter,
    load_llama,
    read_drafter,
    save_drafter,
)
from tuner.engines.redrafter.drafter import Drafter, DrafterConfig
from tuner.errors import BadInput

LARGE = 128  # a vocabulary over the 50 tokens that are scored
PLAIN = {"exit_dim": 48, "scored_tokens": SCORED_TOKENS}
FORMS = {
    "projected": PLAIN,
    "concatenated": {"exit_dim": 2 * HIDDEN, "input_projection": False, "num_blocks": 2},
    "sum of embeddings": {**PLAIN, "recurrence": "sum"},
    "no blocks": {**PLAIN, "num_blocks": 0},
}


def new_drafter(seed=0, **settings):
    torch.manual_seed(seed)
    fixed = {
        "hidden_size": HIDDEN, "vocab_size": LARGE, "exit_dim": 48, "num_blocks": 1,
        "draft_vocab_size": LARGE, "trained_draft_len": 6, "scored_tokens": SCORED_TOKENS,
    }  # fmt: skip
    return Drafter(DrafterConfig(**(fixed | settings)))


def drafts(drafter, width=8, length=4):
    torch.manual_seed(7)
    embed = torch.nn.Embedding(LARGE, HIDDEN)
    context, tokens = torch.randn(16, HIDDEN), torch.randint(0, LARGE, (16,))
    with torch.no_grad():
        return beam_search(drafter, embed, tokens, context, width, length)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_drafter_read_back_is_bit_identical(tmp_path, form, dtype):
    drafter = new_drafter(**FORMS[form]).to(dtype)
    assert export_for_apple(drafter, tmp_path) == []
    again = read_drafter(tmp_path)
    assert again.config == drafter.config
    assert again.state_dict().keys() == drafter.state_dict().keys()
    for name, tensor in again.state_dict().items():
        assert tensor.dtype == drafter.state_dict()[name].dtype
        assert torch.equal(tensor, drafter.state_dict()[name]), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_names_and_config_are_those_of_the_layout(tmp_path):
    export_for_apple(new_drafter(num_blocks=2), tmp_path)
    shapes = {n: list(t.shape) for n, t in load_file(tmp_path / "model.safetensors").items()}
    assert shapes == {
        "rnn_w.weight": [HIDDEN, HIDDEN], "rnn_u.weight": [HIDDEN, HIDDEN], "rnn_u.bias": [HIDDEN],
        "lm_head.0.linear.weight": [48, 48], "lm_head.0.linear.bias": [48],
        "lm_head.1.linear.weight": [48, 48], "lm_head.1.linear.bias": [48],
        "lm_head.2.weight": [LARGE, 48],
        "input_proj.weight": [48, 2 * HIDDEN], "input_proj.bias": [48],
    }  # fmt: skip
    config = json.loads((tmp_path / "config.json").read_text())
    expected = {
        "model_type": "recurrent_drafting_drafter", "vocab_size": LARGE, "hidden_size": HIDDEN,
        "exit_dim": 48, "num_draft_layers": 2, "rnn": True,
    }  # fmt: skip
    assert config.items() >= expected.items()


def released_beams(state, rnn, exit_dim, tokens, context, embed, width, length):
    """The published search, written plainly: one sequence, one beam, one token at a time."""
    blocks = sum(name.endswith("linear.weight") for name in state)
    beams = [(0.0, tokens, torch.zeros(HIDDEN))]
    for _ in range(length):
        grown = []
        for score, beam, before in beams:
            e = embed.weight[beam[-1]]
            s = (
                F.silu(state["rnn_w.weight"] @ e + state["rnn_u.weight"] @ before
                       + state["rnn_u.bias"])
                if rnn else e + before
            )  # fmt: skip
            x = torch.cat((context, s))
            if exit_dim != 2 * HIDDEN:
                x = state["input_proj.weight"] @ x + state["input_proj.bias"]
            for k in range(blocks):
                x = x + F.silu(
                    state[f"lm_head.{k}.linear.weight"] @ x + state[f"lm_head.{k}.linear.bias"]
                )
            best = (state[f"lm_head.{blocks}.weight"] @ x).topk(SCORED_TOKENS)
            logprobs = best.values.log_softmax(0).tolist()
            for token, logprob in zip(best.indices.tolist(), logprobs, strict=True):
                grown.append((score + logprob, [*beam, token], s))
        beams = sorted(grown, key=lambda b: -b[0])[:width]
    return [beam for _, beam, _ in beams]


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_drafts_are_those_of_the_published_search(tmp_path, form):
    drafter = new_drafter(**FORMS[form], seed=3)
    for parameter in drafter.parameters():
        parameter *= 3  # peaked, as trained ones are
    export_for_apple(drafter, tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    torch.manual_seed(7)
    embed = torch.nn.Embedding(LARGE, HIDDEN)
    context, tokens = torch.randn(16, HIDDEN), torch.randint(0, LARGE, (16,))
    got = drafts(read_drafter(tmp_path)).tolist()
    rnn, exit_dim = drafter.config.recurrence == "elman", drafter.config.exit_dim
    for row in range(16):
        expected = released_beams(
            state, rnn, exit_dim, [int(tokens[row])], context[row], embed, 8, 4
        )
        assert got[row] == expected


@pytest.mark.parametrize("form", ["projected", "concatenated"])
def test_a_reduced_vocabulary_is_widened_without_changing_a_draft(tmp_path, form):
    drafter = new_drafter(**FORMS[form], draft_vocab_size=60)
    drafter.draft_vocab = torch.randperm(LARGE)[:60]
    (change,) = export_for_apple(drafter, tmp_path)
    assert "draft_vocab_size 60 to 128" in change
    wide = read_drafter(tmp_path)
    assert wide.config.exit_dim % 64 == 0 and wide.config.exit_dim != 2 * HIDDEN
    assert torch.equal(drafts(wide, width=50), drafts(drafter, width=50))


def test_a_head_sorted_by_frequency_is_put_in_token_order(tmp_path):
    drafter = new_drafter()
    drafter.draft_vocab = torch.randperm(LARGE)
    assert export_for_apple(drafter, tmp_path) == []
    wide = read_drafter(tmp_path)
    assert torch.equal(wide.draft_vocab, torch.arange(LARGE))
    assert torch.equal(drafts(wide), drafts(drafter))


def test_another_scoring_rule_is_said_on_export(tmp_path):
    (change,) = export_for_apple(new_drafter(scored_tokens=0), tmp_path)
    assert change == "scored_tokens 0 to 50: beams may rank differently"
    assert read_drafter(tmp_path).config.scored_tokens == SCORED_TOKENS


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"context_layers": (1,)}, "context_layers"),
        ({"context_width": 16}, "context_width"),
        ({"first_step": "embedding"}, "first_step"),
        ({"exit_dim": 2 * HIDDEN}, "exit_dim"),
        ({"draft_vocab_size": 49}, "draft_vocab_size"),
    ],
)
def test_what_the_layout_cannot_express_is_refused_by_name(tmp_path, settings, field):
    with pytest.raises(BadInput, match=f"{field} = .*Apple's layout cannot express it") as caught:
        export_for_apple(new_drafter(**settings), tmp_path / "out")
    assert caught.value.field == field
    assert not (tmp_path / "out").exists()


@torch.no_grad()
def test_the_papers_first_step_is_the_embedding(tmp_path):
    drafter = new_drafter(first_step="embedding")
    e, d = torch.randn(3, HIDDEN), torch.zeros(3, HIDDEN)
    first = drafter.next_state(e, torch.zeros(3, HIDDEN), d)
    assert torch.equal(first, e)
    released = new_drafter()
    assert torch.equal(drafter.next_state(e, first, d), released.next_state(e, first, d))
    export_for_apple(released, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"first_step": "embedding"}))
    assert read_drafter(tmp_path).config.first_step == "embedding"
    assert not torch.equal(drafts(read_drafter(tmp_path)), drafts(released))


def test_a_foreign_config_without_our_fields_is_read(tmp_path):
    export_for_apple(new_drafter(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for ours in ("trained_draft_len", "tokenizer_sha256", "first_step"):
        del config[ours]
    state = load_file(tmp_path / "model.safetensors")
    save_file(state | {"emb_norm.weight": torch.ones(HIDDEN)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_drafter(tmp_path).config.trained_draft_len == RELEASED_DRAFT_LEN


@pytest.mark.parametrize("prefixes", [("lm_heads.", "input_projs."), ("0.", "input_proj.")])
def test_older_spellings_of_the_names_are_read(tmp_path, prefixes):
    drafter = new_drafter()
    export_for_apple(drafter, tmp_path)
    head, projection = prefixes
    state = {
        name.replace("lm_head.", head).replace("input_proj.", projection): tensor
        for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    save_file(state, tmp_path / "model.safetensors")
    for name, tensor in read_drafter(tmp_path).state_dict().items():
        assert torch.equal(tensor, drafter.state_dict()[name]), name


def test_both_layouts_load_wherever_a_drafter_is_read(tmp_path):
    base = load_llama(save_tiny_llama(tmp_path / "llama")).config
    ours = save_tiny_drafter(tmp_path / "ours", exit_dim=40, scored_tokens=50)
    export_for_apple(read_drafter(ours), tmp_path / "theirs")
    one, other = load_drafter(ours, base), load_drafter(tmp_path / "theirs", base)
    save_drafter(other, tmp_path / "back", dtype=None)
    back = load_drafter(tmp_path / "back", base)
    assert one.config.vocab_size == VOCAB
    for drafter in (other, back):
        assert drafter.config == replace(one.config)
        for name, tensor in one.state_dict().items():
            assert torch.equal(tensor, drafter.state_dict()[name]), name
