"""Files and tokenizers that these tests make for themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from tuner.errors import BadInput
from tuner.workloads import Message

SPECIAL = ("<s>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    """Write one file and return its path."""

    def _write(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return str(path)

    return _write


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[..., Path]:
    """Write a model folder with a byte-level tokenizer that adds <s> by itself."""

    def _make_model(**files: dict[str, object]) -> Path:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocab = {token: index for index, token in enumerate((*SPECIAL, *alphabet))}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(list(SPECIAL))
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
        tokenizer.enable_truncation(4)
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        return tmp_path

    return _make_model


class WordTokenizer:
    """One token a word, numbered in order of appearance from 10; refuses system messages."""

    stop_token_ids = frozenset({1, 2})

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def render(self, messages: Sequence[Message]) -> str:
        if messages[0].role == "system":
            raise BadInput("chat_template", "system", "no system role here")
        return " ".join(message.content for message in messages)

    def encode(self, text: str) -> list[int]:
        return [self.ids.setdefault(word, 10 + len(self.ids)) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        words = list(self.ids)
        return " ".join(words[token - 10] for token in ids)


@pytest.fixture
def word_tokenizer() -> WordTokenizer:
    return WordTokenizer()
