"""What NVIDIA's two tools share: where they are, and how they are told when to record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from profiles.nsight.local_tool import find_tool
from tuner.capture.base import Profiler
from tuner.errors import BadInput


class NsightTool(Profiler):
    """A command in front of the worker, which says by cudaProfilerStart and Stop when to record."""

    product: ClassVar[str]
    needs_gpu = True

    def check(self) -> None:
        """Raise BadInput where the tool is not on this host."""
        self.path()

    def path(self) -> str:
        """The tool on this host. Raises BadInput."""
        found = find_tool(self.name)
        if found is None:
            raise BadInput(
                "profile",
                self.name,
                f"`{self.name}` is not on this host: install NVIDIA {self.product}, which comes "
                "with the CUDA toolkit, and add it to PATH; or use --profile torch",
            )
        return found

    @contextmanager
    def recording(self, folder: Path) -> Iterator[None]:
        """Record while the block runs, phases marked by NVTX; without CUDA nothing listens."""
        import torch

        from tuner.engines.redrafter.clock import annotated_phases

        if not torch.cuda.is_available():
            yield
            return
        runtime = torch.cuda.cudart()
        torch.cuda.synchronize()
        runtime.cudaProfilerStart()
        try:
            with annotated_phases(torch.cuda.nvtx.range):
                yield
        finally:
            torch.cuda.synchronize()
            runtime.cudaProfilerStop()
