"""Numbers in the cells of a table, whatever the locale of the machine that wrote it.

`27.595.520` and `65,77` are one locale, `21,058,944` and `65.77` another, and `117.344` alone says
neither. The decimal mark is therefore decided once for the whole file, by its unambiguous cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SPACES = re.compile(r"(?<=\d)[\u00a0\u202f\u2009'’ ](?=\d{3}(?!\d))")
_MAX_LENGTH = 60
_PLAIN = re.compile(r"[+-]?\d+")
_LOOKS_NUMERIC = re.compile(r"[+-]?\d[^A-Za-z%()]*([eE][^A-Za-z%()]*)?")


@dataclass(frozen=True, slots=True)
class NumberStyle:
    """How a file writes numbers; `contradicted`: some of its cells speak for the other way."""

    decimal_mark: str = "."
    contradicted: bool = False

    def number(self, cell: str) -> float | None:
        """The number in a cell, or None where it holds none in this style."""
        text = _SPACES.sub("", cell.strip())
        if not text or len(text) > _MAX_LENGTH:
            return None
        if not _pattern(self.decimal_mark).fullmatch(text):
            return None
        group = "," if self.decimal_mark == "." else "."
        value = float(text.replace(group, "").replace(self.decimal_mark, "."))
        return value if abs(value) < 1e300 else None


def number_style(cells: Iterable[str]) -> NumberStyle:
    """Decide by all cells of a file; a decimal point where none of them tells."""
    votes = {".": 0, ",": 0}
    for cell in cells:
        mark = _mark_of(cell)
        if mark:
            votes[mark] += 1
    best = "," if votes[","] > votes["."] else "."
    return NumberStyle(best, contradicted=min(votes.values()) > 0)


def looks_numeric(cell: str) -> bool:
    """Whether a cell was meant as a number, so that not reading it is a problem."""
    return bool(_LOOKS_NUMERIC.fullmatch(cell.strip()[: _MAX_LENGTH * 4]))


def _pattern(mark: str) -> re.Pattern[str]:
    return _POINT if mark == "." else _COMMA


_POINT = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?([eE][+-]?\d{1,3})?")
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d{1,3})?")


def _mark_of(cell: str) -> str | None:
    """The decimal mark that a cell proves, or None."""
    text = cell.strip()
    if len(text) > _MAX_LENGTH or _PLAIN.fullmatch(text):
        return None
    point, comma = bool(_POINT.fullmatch(text)), bool(_COMMA.fullmatch(text))
    if point != comma:
        return "." if point else ","
    return None
