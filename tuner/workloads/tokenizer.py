"""From messages to token ids and back, with the light `tokenizers` library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import tokenizers

from tuner.errors import BadInput
from tuner.workloads.chat_template import ChatTemplate
from tuner.workloads.workload import Message


class Tokenizer(Protocol):
    """What `build_requests` needs of a tokenizer."""

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Ids that end an answer."""

    def render(self, messages: Sequence[Message]) -> str:
        """Return the prompt's text. Raises BadInput where the template refuses the messages."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a rendered prompt."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens left out."""


class HFTokenizer:
    """The tokenizer of a model folder in the Hugging Face layout.

    `template` is "chat" where the model brings a chat template, else "none": then messages are
    joined by newlines and the tokenizer adds its own special tokens.
    """

    template: Literal["chat", "none"]

    def __init__(self, model_dir: Path) -> None:
        """Read `model_dir`. Raises BadInput where a file is missing or broken."""
        self._tokenizer = _read_tokenizer(model_dir / "tokenizer.json")
        settings = _read_json(model_dir / "tokenizer_config.json")
        special = _special_tokens(_read_json(model_dir / "special_tokens_map.json") | settings)
        source = _template_source(model_dir, settings)
        self._chat = None if source is None else ChatTemplate(source, special)
        self.template = "none" if source is None else "chat"
        self.stop_token_ids = _stop_token_ids(
            model_dir, self._tokenizer.token_to_id(special.get("eos_token", ""))
        )

    def render(self, messages: Sequence[Message]) -> str:
        """Return the prompt's text, ending where the assistant begins to answer."""
        if self._chat is None:
            return "\n".join(message.content for message in messages)
        return self._chat.render(messages)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a rendered prompt.

        A chat template writes every special token itself; adding the tokenizer's own would
        double the first one.
        """
        return self._tokenizer.encode(text, add_special_tokens=self._chat is None).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens left out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


def _read_tokenizer(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        raise BadInput("model", str(path), "is missing; the model folder needs a tokenizer.json")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise BadInput("model", str(path), f"is no tokenizer ({error}); copy it again") from error
    # NOTE: tokenizer.json may carry the truncation and padding of its training.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _read_json(path: Path) -> dict[str, Any]:
    """Return the object in `path`, empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise BadInput("model", str(path), f"is no JSON ({error}); copy it again") from error
    if not isinstance(value, dict):
        raise BadInput("model", str(path), "must hold a JSON object; copy it again")
    return value


def _special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """Return `bos_token` and its like; newer files write a token as {"content": ...}."""
    tokens: dict[str, str] = {}
    for name, value in settings.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens


def _template_source(model_dir: Path, settings: dict[str, Any]) -> str | None:
    """Return the chat template: its own file first, then tokenizer_config.json."""
    own_file = model_dir / "chat_template.jinja"
    if own_file.is_file():
        return own_file.read_text(encoding="utf-8-sig")
    source = settings.get("chat_template")
    if isinstance(source, list):  # several named templates
        source = {entry["name"]: entry["template"] for entry in source}.get("default")
    return source if isinstance(source, str) else None


def _stop_token_ids(model_dir: Path, tokenizer_eos: int | None) -> frozenset[int]:
    """Ids that end an answer: generation_config.json, else config.json, and the tokenizer's."""
    eos = _read_json(model_dir / "generation_config.json").get("eos_token_id")
    if eos is None:
        eos = _read_json(model_dir / "config.json").get("eos_token_id")
    ids = eos if isinstance(eos, list) else [eos]
    return frozenset(token for token in (*ids, tokenizer_eos) if token is not None)
