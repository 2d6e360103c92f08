"""One GPU's NVML counters, each of which can be missing alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.telemetry.columns import GPU_NAMES
from profiles.telemetry.counters import Missing, MissingLog, Unavailable, Value
from profiles.telemetry.gpm import Gpm
from profiles.telemetry.gpu_calls import Call, calls_of, pcie_calls
from profiles.telemetry.gpu_processes import GpuProcesses
from profiles.telemetry.nvml import Nvml, unavailable, unknown_call

_MIG_IS_ON = "MIG is on, and these counters are those of the whole GPU"
_UNIFIED = "the GPU has no memory of its own (unified memory), see host_memory_used_bytes"


class Gpu:
    """The counters of one GPU, found by UUID (indices change with CUDA_VISIBLE_DEVICES)."""

    def __init__(self, nvml: Nvml, uuid: str, processes: GpuProcesses) -> None:
        self.name = uuid
        self._nvml = nvml
        self._handle: Any = None
        self._mode: str | None = None
        self._log = MissingLog()
        self._gpm: Gpm | None = None
        self._calls = calls_of(nvml, processes)
        self._pcie_calls = pcie_calls(nvml)

    def sample(self, t_s: float, full: bool = False) -> Mapping[str, Value]:
        """Every GPU column; None where the driver gave no value, with its reason noted.

        None without a reason is a counter that is not due; `full` makes all of them due.
        """
        values: dict[str, Value] = dict.fromkeys(GPU_NAMES)
        try:
            self._open()
        except Unavailable as error:
            for column in GPU_NAMES:
                self._log.note(column, error, t_s)
            return values
        for call in self._calls:
            if full or call.is_due(t_s):
                self._make(call, t_s, values)
        self._sample_gpm(t_s, full, values)
        return values

    def missing(self) -> Mapping[str, Missing]:
        """Columns without a value at least once, with the latest reason."""
        return self._log.missing()

    def close(self) -> None:
        """Free the GPM buffers. NVML itself belongs to the caller."""
        if self._gpm is not None:
            self._gpm.close()
            self._gpm = None

    def _open(self) -> None:
        if self._handle is not None:
            return
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self.name)
        except self._nvml.NVMLError as error:
            raise unavailable(error) from error
        self._mode = _MIG_IS_ON if self._mig_is_on() else None
        self._gpm = Gpm(self._nvml, self._handle, self._mode)

    def _mig_is_on(self) -> bool:
        if self.name.startswith("MIG-"):
            return True  # this is an instance of a GPU, not the whole
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(self._handle)[0])
        except (self._nvml.NVMLError, AttributeError):
            return False  # most GPUs have no MIG to be on

    def _make(self, call: Call, t_s: float, values: dict[str, Value]) -> None:
        """Make the call, unless it will never give anything, and fill its columns of `values`."""
        if all(self._log.is_for_good(column) for column in call.columns):
            return
        call.made_t_s = t_s
        try:
            readings = call.read(self._handle)
        except (self._nvml.NVMLError, Unavailable, AttributeError) as error:
            readings = (error,) * len(call.columns)
        for column, reading in zip(call.columns, readings, strict=True):
            if isinstance(reading, Exception):
                self._log.note(column, self._reason(column, reading), t_s)
            else:
                values[column] = reading

    def _reason(self, column: str, error: Exception) -> Unavailable:
        if isinstance(error, Unavailable):
            return error
        if isinstance(error, AttributeError):
            return unknown_call(error)
        unified = _UNIFIED if column == "memory_used_bytes" else None
        return unavailable(error, self._mode or unified)

    def _sample_gpm(self, t_s: float, full: bool, values: dict[str, Value]) -> None:
        assert self._gpm is not None
        for column, value in self._gpm.sample(t_s).items():
            if not isinstance(value, Unavailable):
                values[column] = value
            elif value.for_good and column in self._pcie_calls:
                call = self._pcie_calls[column]
                if full or call.is_due(t_s):
                    self._make(call, t_s, values)
            else:
                self._log.note(column, value, t_s)
