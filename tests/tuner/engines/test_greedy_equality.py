"""Greedy text of the tiny model equals transformers' generate, token for token, in fp32."""

from __future__ import annotations

import random

import pytest
import torch

from profiles.records import RequestRecord, StepRecord, TrialConfig
from tests.tuner.engines.tiny import VOCAB, save_tiny_drafter, save_tiny_llama
from tuner.engines.base import Request
from tuner.engines.redrafter import decode, prefill
from tuner.engines.redrafter.checkpoint import load_drafter, load_llama
from tuner.engines.redrafter.decode import DecodeLoop
from tuner.engines.redrafter.draft_length import DraftLength
from tuner.engines.redrafter.drafters.recurrent import RecurrentDraft
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.engines.redrafter.kv_cache import KVCache

SHAPES = {
    "grouped-query, tied": {},
    "untied": {"tie_word_embeddings": False},
    "one head a group": {"num_key_value_heads": 4},
    "wide heads": {"head_dim": 16},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "llama3 rope": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        }
    },
    "linear rope": {
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    },
}


def prompts(count: int, longest: int = 20) -> list[tuple[int, ...]]:
    draw = random.Random(0)
    return [
        tuple(draw.randrange(VOCAB) for _ in range(draw.randint(1, longest))) for _ in range(count)
    ]


def generate(folder, requests) -> dict[str, list[int]]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    texts = {}
    for request in requests:
        ids = torch.tensor([request.prompt_token_ids])
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=request.max_new_tokens,
            do_sample=False,
            pad_token_id=0,
        )
        texts[request.id] = out[0, ids.shape[1] :].tolist()
    return texts


def serve(model, drafter, requests, **knobs):
    engine = RedrafterEngine()
    fixed = {"model": str(model), "drafter": str(drafter), "device": "cpu", "quantization": "fp32"}
    engine.prepare(TrialConfig(**fixed, **knobs), 64)
    records = list(engine.serve(requests))
    engine.close()
    texts = {r.id: r.output_token_ids for r in records if isinstance(r, RequestRecord)}
    return texts, [r for r in records if isinstance(r, StepRecord)]


@pytest.mark.parametrize("shape", SHAPES)
def test_architectures(tmp_path, tiny_drafter, shape):
    model = save_tiny_llama(tmp_path / "model", **SHAPES[shape])
    requests = [Request(str(i), p, 24) for i, p in enumerate(prompts(5))]
    expected = generate(model, requests)
    assert (
        serve(model, tiny_drafter, requests, beam_width=4, draft_len=4, batch_size=3)[0] == expected
    )


def test_qwen2_attention_bias(tmp_path, tiny_drafter):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.4,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.bias.normal_()
            layer.self_attn.v_proj.bias.normal_()
    model.save_pretrained(tmp_path / "qwen")
    requests = [Request(str(i), p, 24) for i, p in enumerate(prompts(4))]
    expected = generate(tmp_path / "qwen", requests)
    assert serve(tmp_path / "qwen", tiny_drafter, requests, batch_size=2)[0] == expected


@pytest.mark.parametrize(
    ("beam_width", "draft_len", "batch_size"),
    [(1, 0, 1), (1, 1, 1), (1, 4, 8), (4, 4, 1), (4, 4, 8), (16, 5, 8), (2, 6, 3)],
)
def test_joining_and_leaving_between_steps(tiny_llama, tmp_path, beam_width, draft_len, batch_size):
    # A drafter of four tokens that are often right: accepted paths of every length occur.
    drafter = save_tiny_drafter(tmp_path / "drafter", draft_vocab_size=16, scale=2.0)
    draw = random.Random(1)
    requests = [Request(str(i), p, draw.randint(1, 40)) for i, p in enumerate(prompts(16))]
    texts, steps = serve(
        tiny_llama,
        drafter,
        requests,
        beam_width=beam_width,
        draft_len=draft_len,
        batch_size=batch_size,
    )
    assert texts == generate(tiny_llama, requests)
    if batch_size > 1:
        mixed = [s for s in steps if s.context_requests and s.request_ids]
        assert mixed, "some step must hold prompts and generations at once"


@pytest.mark.parametrize(("beam_width", "draft_len"), [(1, 0), (1, 3), (4, 4)])
def test_static_shapes_with_idle_rows(tiny_llama, tmp_path, monkeypatch, beam_width, draft_len):
    # What CUDA captures: a power of two of rows, trees of full room, attention over everything.
    drafter = load_drafter(
        save_tiny_drafter(tmp_path / "drafter", draft_vocab_size=16, scale=2.0),
        (model := load_llama(tiny_llama)).config,
    )
    model.prepare_positions(128, torch.device("cpu"), torch.float32)
    cache = KVCache(model.config, 40, torch.device("cpu"), torch.float32)
    monkeypatch.setattr(prefill, "PADDED_SIZES", (4, 8))  # prompts take several chunks
    monkeypatch.setattr(decode, "PADDED_SIZES", (4, 8))
    monkeypatch.setattr(decode, "PROMPT_TOKENS_PER_STEP", 12)  # and several steps
    method = RecurrentDraft(drafter, model.embed_tokens)
    loop = DecodeLoop(model, method, cache, beam_width, DraftLength(draft_len), 6, 64, static=True)
    loop.capture(sampled=False)
    shapes = set()
    run = loop.generation_steps.run
    loop.generation_steps.run = lambda shape, begin: shapes.add(shape) or run(shape, begin)
    requests = [Request(str(i), p, 10 + 3 * i) for i, p in enumerate(prompts(9))]
    served = loop.serve(requests)
    texts = {r.id: r.output_token_ids for r in served if isinstance(r, RequestRecord)}
    assert texts == generate(tiny_llama, requests)
    assert {shape.rows for shape in shapes} == {1, 2, 4, 6}


def test_a_tree_of_every_continuation_is_always_accepted(tmp_path):
    model = save_tiny_llama(tmp_path / "model", vocab=4)
    drafter = save_tiny_drafter(tmp_path / "drafter", vocab=4)
    requests = [Request(str(i), tuple(t % 4 for t in p), 31) for i, p in enumerate(prompts(6))]
    texts, steps = serve(model, drafter, requests, beam_width=16, draft_len=2, batch_size=4)
    assert texts == generate(model, requests)
    assert {a for s in steps for a in s.accepted} == {2}
    assert {c for s in steps for c in s.committed} == {3}  # 30 tokens after the first: ten steps
    assert {n for s in steps for n in s.tree_nodes} == {1 + 4 + 16}


def test_a_wrong_drafter_gets_exactly_one_token_per_step(tiny_llama, tmp_path):
    requests = [Request(str(i), p, 24) for i, p in enumerate(prompts(4))]
    texts = generate(tiny_llama, requests)
    used = {token for text in texts.values() for token in text}
    never = sorted(set(range(VOCAB)) - used)
    assert never, "the model must leave some token unused"
    drafter = save_tiny_drafter(tmp_path / "wrong", draft_vocab_size=len(never))
    from safetensors.torch import load_file, save_file

    state = load_file(drafter / "model.safetensors")
    state["draft_vocab"] = torch.tensor(never)
    save_file(state, drafter / "model.safetensors")
    got, steps = serve(tiny_llama, drafter, requests, beam_width=1, draft_len=4, batch_size=2)
    assert got == texts
    committed = [c for s in steps for c in s.committed]
    assert sum(committed) / len(committed) == 1.0
