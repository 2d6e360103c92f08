"""Engines by name. Importing this package imports no engine: each is loaded when asked for."""

from __future__ import annotations

import importlib

from tuner.engines.base import Engine
from tuner.errors import BadInput

_ENGINES = {
    "redrafter": "tuner.engines.redrafter.engine:RedrafterEngine",
    "fake": "tuner.engines.fake:FakeEngine",
}


def engine_names() -> tuple[str, ...]:
    """Return the names that `engine_class` knows."""
    return tuple(_ENGINES)


def engine_class(name: str) -> type[Engine]:
    """Import and return the engine called `name`.

    Raises:
        BadInput: no engine by that name.
    """
    if name not in _ENGINES:
        raise BadInput("engine", name, f"use one of {', '.join(_ENGINES)}")
    module, attribute = _ENGINES[name].split(":")
    engine: type[Engine] = getattr(importlib.import_module(module), attribute)
    return engine
