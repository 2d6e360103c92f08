"""Generation steps as CUDA graphs: captured once per shape, replayed ever after.

A step is launch-bound: some hundreds of small kernels that take longer to launch than to run. Its
shapes do not depend on what is accepted, because trees have a fixed room, idle rows are padding and
lengths live on the device. So it can be captured although the paths through the tree are dynamic.
Every phase is a graph of its own, so that phases stay visible to the clock and to profilers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tuner.engines.redrafter.generation import BeginPhase, Generation, StepShape
from tuner.errors import EngineFailure


@dataclass(slots=True)
class _Captured:
    phases: list[tuple[str, torch.cuda.CUDAGraph]] = field(default_factory=list)
    outcome: Tensor | None = None


class Graphs:
    """Runs the steps of a generation, capturing each shape when it is first seen."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.captures = 0
        self._captured: dict[StepShape, _Captured] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()

    def run(self, shape: StepShape, begin: BeginPhase) -> Tensor:
        """Run one step as `Generation.run` does. Raises EngineFailure if it cannot be captured."""
        self.capture(shape)
        captured = self._captured[shape]
        for phase, graph in captured.phases:
            begin(phase)
            graph.replay()
        assert captured.outcome is not None
        return captured.outcome

    @torch.inference_mode()
    def capture(self, shape: StepShape) -> None:
        """Capture `shape` unless it is. Raises EngineFailure if it cannot be captured."""
        if shape not in self._captured:
            self._captured[shape] = self._capture(shape)
            self.captures += 1

    def _capture(self, shape: StepShape) -> _Captured:
        before = [tensor.clone() for tensor in self.generation.rows.tensors()]
        random = self.generation.generator.get_state()
        captured = _Captured()
        torch.cuda.synchronize()
        self._stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self._stream):
                # NOTE: libraries set themselves up on first use, which a capture does not allow.
                self.generation.run(shape, lambda phase: None)
                for tensor, value in zip(self.generation.rows.tensors(), before, strict=True):
                    tensor.copy_(value)
                self.generation.generator.set_state(random)
                captured.outcome = self._record(shape, captured)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise EngineFailure(f"the step {shape} cannot be captured: {error}") from error
        torch.cuda.current_stream().wait_stream(self._stream)
        return captured

    def _record(self, shape: StepShape, captured: _Captured) -> Tensor:
        def begin(phase: str) -> None:
            if captured.phases:
                captured.phases[-1][1].capture_end()
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(self.generation.generator)
            captured.phases.append((phase, graph))
            graph.capture_begin(self._pool)

        try:
            return self.generation.run(shape, begin)
        finally:
            captured.phases[-1][1].capture_end()
