"""Which profiler a person asked for, and whether it is of use to this trial on this host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from profiles.records import TrialConfig
from tuner.capture import profiler_class, profiler_names
from tuner.capture.base import GraphTrace, Profiler
from tuner.engines import engine_class
from tuner.errors import BadInput


@dataclass(frozen=True, slots=True)
class Asked:
    """A profiler and how many steps it records."""

    profiler: Profiler
    steps: int


def choose_profiler(
    config: TrialConfig, name: str | None, graph_trace: str | None, steps: int | None
) -> Asked | None:
    """Return what was asked for; None when nothing was.

    Raises:
        BadInput: an unknown name or choice, a tool that is missing, a trial without a GPU.
    """
    if name is None:
        for option, value in (("graph_trace", graph_trace), ("profile_steps", steps)):
            if value is not None:
                raise BadInput(option, value, "add --profile nsys, ncu or torch")
        return None
    if name not in profiler_names():
        raise BadInput("profile", name, f"use one of {', '.join(profiler_names())}")
    profiler = profiler_class(name)(**_choices(name, graph_trace))
    profiler.check()
    support = engine_class(config.engine).support(config.device)
    if profiler.needs_gpu and not support.gpu_uuids:
        where = support.device or support.reason
        raise BadInput(
            "profile", name, f"it records GPUs, and this trial has none ({where}); use torch"
        )
    return Asked(profiler, steps or profiler.steps)


def _choices(name: str, graph_trace: str | None) -> dict[str, Any]:
    if graph_trace is None:
        return {}
    if name != "nsys":
        raise BadInput("graph_trace", graph_trace, "only --profile nsys has this choice")
    if graph_trace not in get_args(GraphTrace):
        raise BadInput("graph_trace", graph_trace, f"use {' or '.join(get_args(GraphTrace))}")
    return {"graph_trace": graph_trace}
