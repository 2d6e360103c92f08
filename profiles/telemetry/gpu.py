"""One GPU's NVML counters, each of which can be missing alone.

Units and meanings are those of NVIDIA's NVML API reference; `columns.py` repeats them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from profiles.telemetry.columns import GPU_NAMES
from profiles.telemetry.counters import Missing, MissingLog, Unavailable, Value
from profiles.telemetry.gpm import Gpm
from profiles.telemetry.gpu_processes import GpuProcesses
from profiles.telemetry.nvlink import DATA_RX, DATA_TX, NvLink
from profiles.telemetry.nvml import Nvml, unavailable, unknown_call

_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # NVML_CLOCK_*
_CORE_SENSOR = 0  # NVML_TEMPERATURE_GPU
_PERIOD_S = {
    "energy_mj": 0.95,
    "nvlink_tx_bytes": 0.95,
    "nvlink_rx_bytes": 0.95,
    "gpu_processes": 0.95,
    "foreign_processes": 0.95,
    "pcie_tx_bytes_per_s": 1.95,
    "pcie_rx_bytes_per_s": 1.95,
}
"""Counters not read at every tick. Measured on an H200 with driver 580: reading the energy keeps a
core busy for 4.2 ms, everything else together for 0.9 ms; the counter itself moves every 0.1 s.
The PCIe calls wait 20 ms each and are made only where GPM does not give the same."""
_PCIE = {"pcie_tx_bytes_per_s": 0, "pcie_rx_bytes_per_s": 1}  # NVML_PCIE_UTIL_*
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
        self._read_t_s = dict.fromkeys(_PERIOD_S, -float("inf"))
        self._gpm: Gpm | None = None
        nvlink = NvLink(nvml)
        self._readers: dict[str, Callable[[], int | float]] = {
            "gpu_busy_pct": lambda: self._utilization("gpu"),
            "memory_busy_pct": lambda: self._utilization("memory"),
            "memory_used_bytes": self._memory_used_bytes,
            "power_mw": lambda: int(nvml.nvmlDeviceGetPowerUsage(self._handle)),
            "energy_mj": lambda: int(nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)),
            "sm_clock_mhz": lambda: int(nvml.nvmlDeviceGetClockInfo(self._handle, _SM_CLOCK)),
            "memory_clock_mhz": lambda: int(
                nvml.nvmlDeviceGetClockInfo(self._handle, _MEMORY_CLOCK)
            ),
            "temperature_c": self._temperature_c,
            "throttle_reasons": self._throttle_reasons,
            "nvlink_tx_bytes": lambda: nvlink.bytes_of(self._handle, DATA_TX),
            "nvlink_rx_bytes": lambda: nvlink.bytes_of(self._handle, DATA_RX),
            "gpu_processes": lambda: processes.all(self._handle),
            "foreign_processes": lambda: processes.foreign(self._handle),
        }

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
        for column, reader in self._readers.items():
            if full or self._is_due(column, t_s):
                values[column] = self._read(column, reader, t_s)
        values.update(self._sample_gpm(t_s, full))
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

    def _is_due(self, column: str, t_s: float) -> bool:
        if column in _PERIOD_S:
            return t_s - self._read_t_s[column] >= _PERIOD_S[column]
        return True

    def _read(self, column: str, reader: Callable[[], int | float], t_s: float) -> Value:
        if self._log.is_for_good(column):
            return None
        if column in _PERIOD_S:
            self._read_t_s[column] = t_s
        try:
            return reader()
        except self._nvml.NVMLError as error:
            self._log.note(column, unavailable(error, self._mode), t_s)
        except Unavailable as error:
            self._log.note(column, error, t_s)
        except AttributeError as error:
            self._log.note(column, unknown_call(error), t_s)
        return None

    def _sample_gpm(self, t_s: float, full: bool) -> dict[str, Value]:
        assert self._gpm is not None
        values: dict[str, Value] = {}
        for column, value in self._gpm.sample(t_s).items():
            if not isinstance(value, Unavailable):
                values[column] = value
            elif column in _PCIE and value.for_good:
                if full or self._is_due(column, t_s):
                    values[column] = self._read(column, partial(self._pcie, column), t_s)
            else:
                self._log.note(column, value, t_s)
        return values

    def _utilization(self, part: str) -> float:
        busy = float(getattr(self._nvml.nvmlDeviceGetUtilizationRates(self._handle), part))
        if not 0 <= busy <= 100:
            raise Unavailable(f"the driver reported {busy:g} %, which cannot be")
        return busy

    def _memory_used_bytes(self) -> int:
        try:
            return int(memory_info(self._nvml, self._handle).used)
        except self._nvml.NVMLError as error:
            raise unavailable(error, self._mode or _UNIFIED) from error

    def _pcie(self, column: str) -> float:
        return 1e3 * float(self._nvml.nvmlDeviceGetPcieThroughput(self._handle, _PCIE[column]))

    def _temperature_c(self) -> int:
        new, old = "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"
        return int(self._newest(new, old, _CORE_SENSOR))

    def _throttle_reasons(self) -> int:
        new = "nvmlDeviceGetCurrentClocksEventReasons"
        return int(self._newest(new, "nvmlDeviceGetCurrentClocksThrottleReasons"))

    def _newest(self, new: str, old: str, *args: int) -> Any:
        """Call `new`; where this nvidia-ml-py or the driver does not know it yet, `old`."""
        if hasattr(self._nvml, new):
            try:
                return getattr(self._nvml, new)(self._handle, *args)
            except self._nvml.NVMLError as error:
                if not unavailable(error).for_good:
                    raise
        return getattr(self._nvml, old)(self._handle, *args)


def memory_info(nvml: Nvml, handle: Any) -> Any:
    """Memory of a GPU with `total` and `used` in bytes.

    Version 2 leaves the driver's reserve out of `used`; version 1, for old drivers, counts it in.
    Raises NVMLError where the GPU shares the host's memory.
    """
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError as error:
        if not unavailable(error).for_good:
            raise
        return nvml.nvmlDeviceGetMemoryInfo(handle)
