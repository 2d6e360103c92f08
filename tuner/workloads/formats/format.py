"""What a format is: how its first row is recognised, and how its rows are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from tuner.workloads.rows import Row
from tuner.workloads.workload import Prompt, ShapeRequest


@dataclass(frozen=True, slots=True)
class Contents:
    """What a source holds: prompts or shapes, and in words what was left out."""

    prompts: tuple[Prompt, ...] = ()
    shapes: tuple[ShapeRequest, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Format:
    """One accepted format. `shape` is what error messages show of it."""

    name: str
    shape: str
    recognises: Callable[[Set[str]], bool]  # the keys of the first row
    parse: Callable[[Iterable[Row]], Contents]  # raises BadInput, naming the line
