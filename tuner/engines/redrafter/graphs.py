"""Work on static tensors as CUDA graphs: captured once per shape, replayed ever after.

A generation step is launch-bound: some hundreds of small kernels that take longer to launch than to
run. Its shapes do not depend on what is accepted, because trees have a fixed room, idle rows are
padding and lengths live on the device. So it can be captured although the paths through the tree
are dynamic.
Every phase is a graph of its own, so that phases stay visible to the clock and to profilers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from tuner.engines.redrafter.generation import BeginPhase
from tuner.errors import EngineFailure

Shape = TypeVar("Shape", bound=Hashable, contravariant=True)
Result = TypeVar("Result", covariant=True)


@dataclass(slots=True)
class _Captured(Generic[Result]):
    phases: list[tuple[str, torch.cuda.CUDAGraph]] = field(default_factory=list)
    result: Result | None = None


class Runner(Protocol[Shape, Result]):
    """Does work of a few shapes again and again."""

    def run(self, shape: Shape, begin: BeginPhase) -> Result:
        """Do the work of `shape`, calling `begin` as each phase starts."""

    def capture(self, shape: Shape) -> None:
        """Prepare for `shape`, so that running it needs no preparation."""


class Eager(Generic[Shape, Result]):
    """Does the work of a shape each time it is asked to."""

    def __init__(self, run: Callable[[Shape, BeginPhase], Result]) -> None:
        self.run = run

    def capture(self, shape: Shape) -> None:
        """Do nothing: there is nothing to prepare."""


class _Room:
    """The stream that every graph is captured on and the memory that all of them run in.

    Graphs are replayed one after the other, so they may overwrite each other's intermediate
    tensors. Libraries keep a workspace for every stream, so one stream is enough of them.
    """

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        # NOTE: memory without a graph is given back for good; this one is never given back.
        self._keeper = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            self._keeper.capture_begin()
            torch.zeros(1, device="cuda")
            self._keeper.capture_end()
        self.pool = self._keeper.pool()


@cache
def _room(device: int) -> _Room:
    with torch.cuda.device(device):
        return _Room()


class Graphs(Generic[Shape, Result]):
    """Replays `run(shape, begin)`, capturing each shape when it is first seen.

    `run` calls `begin` as each phase starts, before any work. What it changes for good is listed in
    `state`, because it is run once before it is captured. Its result is overwritten by the next.
    """

    def __init__(
        self,
        run: Callable[[Shape, BeginPhase], Result],
        state: tuple[Tensor, ...],
        generator: torch.Generator,
    ) -> None:
        self._run, self._state, self._generator = run, state, generator
        self._captured: dict[Shape, _Captured[Result]] = {}
        self._room = _room(generator.device.index or 0)

    def run(self, shape: Shape, begin: BeginPhase) -> Result:
        """Do the work of `shape`. Raises EngineFailure if it cannot be captured."""
        self.capture(shape)
        captured = self._captured[shape]
        for phase, graph in captured.phases:
            begin(phase)
            graph.replay()
        assert captured.result is not None
        return captured.result

    @torch.inference_mode()
    def capture(self, shape: Shape) -> None:
        """Capture `shape` unless it is. Raises EngineFailure if it cannot be captured."""
        if shape not in self._captured:
            self._captured[shape] = self._capture(shape)

    def _capture(self, shape: Shape) -> _Captured[Result]:
        before = [tensor.clone() for tensor in self._state]
        random = self._generator.get_state()
        captured: _Captured[Result] = _Captured()
        torch.cuda.synchronize()
        self._room.stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self._room.stream):
                # NOTE: libraries set themselves up on first use, which a capture does not allow.
                self._run(shape, lambda phase: None)
                for tensor, value in zip(self._state, before, strict=True):
                    tensor.copy_(value)
                self._generator.set_state(random)
                captured.result = self._record(shape, captured)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise EngineFailure(f"{shape} cannot be captured as a CUDA graph: {error}") from error
        torch.cuda.current_stream().wait_stream(self._room.stream)
        return captured

    def _record(self, shape: Shape, captured: _Captured[Result]) -> Result:
        def begin(phase: str) -> None:
            if captured.phases:
                captured.phases[-1][1].capture_end()
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(self._generator)
            captured.phases.append((phase, graph))
            graph.capture_begin(self._room.pool)

        try:
            return self._run(shape, begin)
        finally:
            captured.phases[-1][1].capture_end()
