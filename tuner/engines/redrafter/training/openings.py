"""Beginnings of user turns, drawn from templates so that self-written prompts vary."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_SLOT = re.compile(r"\{(\w+?)2?\}")
_ALONE = 0.5  # share of finished questions that are asked as they stand
DOCSTRING_END = '"""'


@dataclass(frozen=True, slots=True)
class Opening:
    """A beginning. `complete` ones are whole turns; `stub` ones run to the docstring's end."""

    category: str
    text: str
    complete: bool

    @property
    def is_stub(self) -> bool:
        """Whether this is a function to be completed."""
        return self.category == "stub"


def draw_openings(count: int, seed: int) -> list[Opening]:
    """Draw `count` openings, categories in the shares of openings.yaml."""
    table = _table()
    chance = random.Random(seed)
    categories = list(table["shares"])
    drawn = chance.choices(categories, weights=list(table["shares"].values()), k=count)
    return [_draw(category, table, chance) for category in drawn]


@cache
def _table() -> dict[str, Any]:
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return table


def _draw(category: str, table: dict[str, Any], chance: random.Random) -> Opening:
    template = chance.choice(table["openings"][category])
    held: dict[str, str] = {}

    def fill(slot: re.Match[str]) -> str:
        # {name} and {name2} are drawn apart; {arg} and {arg}2 are one word.
        name = slot.group(0)
        if name not in held:
            held[name] = str(chance.choice(table["words"][slot.group(1)]))
        return held[name]

    # NOTE: a trailing space would be a token of its own, which no text continues.
    text = _SLOT.sub(fill, template).rstrip(" ")
    finished = text.rstrip().endswith(("?", ".")) and category not in ("stub", "word_problem")
    return Opening(category, text, finished and chance.random() < _ALONE)
