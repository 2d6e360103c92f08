from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import tokenizers
import torch

from tests.tuner.engines.tiny import VOCAB, save_tiny_drafter, save_tiny_llama
from tuner.engines.redrafter.checkpoint import load_drafter
from tuner.engines.redrafter.drafters import load_draft_method
from tuner.engines.redrafter.drafters.look_back import (
    LookBack,
    LookBackConfig,
    save_local_attention,
)
from tuner.engines.redrafter.linear import compute_path
from tuner.engines.redrafter.training.answers import prepare_answers
from tuner.engines.redrafter.training.batch_decode import Decoding, decode
from tuner.engines.redrafter.training.forward import load_frozen

CPU = torch.device("cpu")
NEW_TOKENS = 24


def save_tokenizer(folder, words=VOCAB):
    """Write a tokenizer whose token i is the word `w<i>`."""
    model = tokenizers.models.WordLevel({f"w{i}": i for i in range(words)}, unk_token="w0")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))


def save_tiny_local_attention(folder, recurrent_dir, base_config, **settings):
    """Write a random local-attention drafter whose window is shorter than the texts."""
    recurrent = load_drafter(recurrent_dir, base_config)
    torch.manual_seed(3)
    config = LookBackConfig(**{"window": 12, "num_heads": 2, "head_dim": 8} | settings)
    save_local_attention(recurrent, LookBack(config, recurrent.config), folder)
    return folder


def answers_for(tiny, method, pairs=None):
    """Prompts and answers, read for `method`; those of the base model if none are given."""
    prompts, answers = zip(*(pairs or tiny.pairs), strict=True)
    return prepare_answers(tiny.base, prompts, answers, ["any"] * len(prompts), method)


def counts(answers, steps):
    """Steps and committed tokens of every answer."""
    rows = len(answers.tokens)
    committed = torch.zeros(rows, dtype=torch.long).index_add(0, steps.row, steps.committed)
    return list(
        zip(torch.bincount(steps.row, minlength=rows).tolist(), committed.tolist(), strict=True)
    )


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A base model, its greedy answers to some prompts, and a drafter of every kind."""
    root = tmp_path_factory.mktemp("drafters")
    model_dir = save_tiny_llama(root / "base")
    save_tokenizer(model_dir)
    base = load_frozen(model_dir, CPU, 128)
    recurrent = save_tiny_drafter(root / "recurrent", context_layers=(1,))
    small = save_tiny_llama(root / "small", num_hidden_layers=1, num_key_value_heads=1)
    save_tokenizer(small)
    attention = save_tiny_local_attention(root / "attention", recurrent, base.config)
    (root / "store.txt").write_text("w1 w2 w3 w4 w5 w6 w7 w8", encoding="utf-8")
    draw = random.Random(0)
    prompts = [[draw.randrange(VOCAB) for _ in range(length)] for length in (1, 2, 17)]
    answers = decode(base, prompts, Decoding(NEW_TOKENS, frozenset())).tolist()
    names = {
        "recurrent": str(recurrent),
        "retrieval": "retrieval",
        "retrieval with a store": f"retrieval:{root / 'store.txt'}",
        "causal LM": str(small),
        "the base model itself": str(model_dir),
        "local attention": str(attention),
    }

    def load(kind):
        return load_draft_method(names[kind], base, model_dir, compute_path("fp32", CPU))

    return SimpleNamespace(
        base=base,
        model_dir=model_dir,
        names=names,
        load=load,
        pairs=list(zip(prompts, answers, strict=True)),
    )
