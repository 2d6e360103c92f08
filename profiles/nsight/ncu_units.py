"""Base units for every spelling that Nsight Compute has used: ns, byte, hz and their ratios.

`nsecond`, `Kbyte`, `cycle/nsecond` until 2023; `ns`, `Kbyte`, `Ghz` after. Prefixes are decimal.
"""

from __future__ import annotations

import re

_TIMES = {
    "nsecond": 1.0,
    "ns": 1.0,
    "usecond": 1e3,
    "us": 1e3,
    "msecond": 1e6,
    "ms": 1e6,
    "second": 1e9,
    "s": 1e9,
}
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40}
_PREFIXED = re.compile(r"([kmgtp]i?)?(byte|bit|hz|b|inst|cycle|sector|request|flop|op)")
_BASE = {"b": "byte"}


def base_unit(unit: str) -> tuple[str, float]:
    """The base unit of a spelling and what to multiply values with; an unknown one stays."""
    unit = unit.strip()
    top, slash, bottom = unit.partition("/")
    name, scale = _base(top)
    if not slash:
        return name, scale
    below = bottom.strip()
    if below.lower() in _TIMES:  # per second is the base of rates
        scale *= 1e9 / _TIMES[below.lower()]
        return ("hz", scale) if name == "cycle" else (f"{name}/s", scale)
    per, per_scale = _base(below)
    return f"{name}/{per}", scale / per_scale


def _base(unit: str) -> tuple[str, float]:
    lower = unit.lower()
    if lower in _TIMES:
        return "ns", _TIMES[lower]
    found = _PREFIXED.fullmatch(lower)
    if not found:
        return unit, 1.0
    prefix = found[1] or ""
    return _BASE.get(found[2], found[2]), (_PREFIXES | _BINARY)[prefix]
