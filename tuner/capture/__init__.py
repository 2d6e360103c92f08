"""Profilers that can watch a trial, by name. Importing this package imports none of them."""

from __future__ import annotations

import importlib

from tuner.capture.base import Profiler

_PROFILERS = {
    "nsys": "tuner.capture.nsys:Nsys",
    "ncu": "tuner.capture.ncu:Ncu",
    "torch": "tuner.capture.torch_profiler:TorchProfiler",
}


def profiler_names() -> tuple[str, ...]:
    """Return the names that `profiler_class` knows."""
    return tuple(_PROFILERS)


def profiler_class(name: str) -> type[Profiler]:
    """Import and return the profiler called `name`, one of `profiler_names`."""
    module, attribute = _PROFILERS[name].split(":")
    profiler: type[Profiler] = getattr(importlib.import_module(module), attribute)
    return profiler
