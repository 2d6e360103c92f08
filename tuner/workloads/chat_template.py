"""Rendering a model's own chat template, sandboxed, as `transformers` does.

Source of the environment's settings: `transformers.utils.chat_template_utils`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tuner.errors import BadInput
from tuner.workloads.workload import Message

# NOTE: templates that print today's date would make every day's prompts differ, and runs of two
# days could not be compared. They are told this one.
TODAY = datetime(2025, 1, 1)


class GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}` marks answers for training; here its body stays."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[Node]:
        """Return the nodes inside the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template. `special_tokens` (`bos_token`, `eos_token`...) are its variables."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationBlock],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = TODAY.strftime
        self._special_tokens = dict(special_tokens)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise BadInput("chat_template", source[:80], f"cannot be compiled: {error}") from error

    def render(self, messages: Sequence[Message]) -> str:
        """Return the prompt's text, ending where the assistant begins to answer.

        Raises:
            BadInput: the template refuses these messages (for example a system role).
        """
        try:
            return self._template.render(
                messages=[{"role": m.role, "content": m.content} for m in messages],
                add_generation_prompt=True,
                tools=None,
                documents=None,
                **self._special_tokens,
            )
        except Exception as error:  # a template is foreign code
            roles = ", ".join(message.role for message in messages)
            raise BadInput(
                "chat_template", roles, f"the model's chat template refuses this chat: {error}"
            ) from error


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
