"""The calls to NVML that one GPU's columns come from, and how often each is made.

Units and meanings are those of NVIDIA's NVML API reference; `columns.py` repeats them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from profiles.telemetry.counters import Reading, Unavailable
from profiles.telemetry.gpu_processes import GpuProcesses
from profiles.telemetry.nvlink import NvLink
from profiles.telemetry.nvml import Nvml, unavailable

_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # NVML_CLOCK_*
_CORE_SENSOR = 0  # NVML_TEMPERATURE_GPU
_PCIE = {"pcie_tx_bytes_per_s": 0, "pcie_rx_bytes_per_s": 1}  # NVML_PCIE_UTIL_*
_AT_1_HZ, _EVERY_2_S = 0.95, 1.95
"""Periods of what is not read at every tick. Measured on an H200 with driver 580: reading the
energy keeps a core busy for 4.2 ms, everything else together for 0.9 ms; the counter itself moves
every 0.1 s. The PCIe calls wait 20 ms each and are made only where GPM does not give the same."""


@dataclass(slots=True)
class Call:
    """One call and the columns it gives, each of which may still lack a value alone."""

    columns: tuple[str, ...]
    read: Callable[[Any], tuple[Reading, ...]]
    period_s: float = 0.0
    made_t_s: float = -float("inf")

    def is_due(self, t_s: float) -> bool:
        """Whether its period has passed."""
        return t_s - self.made_t_s >= self.period_s


def calls_of(nvml: Nvml, processes: GpuProcesses) -> list[Call]:
    """Every call whose columns GPM does not give."""
    return [
        Call(("gpu_busy_pct", "memory_busy_pct"), partial(_busy, nvml)),
        _number("memory_used_bytes", lambda handle: memory_info(nvml, handle).used),
        _number("power_mw", lambda handle: nvml.nvmlDeviceGetPowerUsage(handle)),
        _number(
            "energy_mj", lambda handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle), _AT_1_HZ
        ),
        _number("sm_clock_mhz", lambda handle: nvml.nvmlDeviceGetClockInfo(handle, _SM_CLOCK)),
        _number(
            "memory_clock_mhz", lambda handle: nvml.nvmlDeviceGetClockInfo(handle, _MEMORY_CLOCK)
        ),
        _number("temperature_c", partial(_temperature, nvml)),
        _number("throttle_reasons", partial(_throttle_reasons, nvml)),
        Call(("nvlink_tx_bytes", "nvlink_rx_bytes"), NvLink(nvml).sent_and_received, _AT_1_HZ),
        Call(("gpu_processes", "foreign_processes"), processes.count, _AT_1_HZ),
    ]


def pcie_calls(nvml: Nvml) -> dict[str, Call]:
    """The calls for GPUs without GPM, by column."""

    def bytes_per_s(direction: int, handle: Any) -> tuple[Reading]:
        return (1e3 * float(nvml.nvmlDeviceGetPcieThroughput(handle, direction)),)

    return {
        column: Call((column,), partial(bytes_per_s, direction), _EVERY_2_S)
        for column, direction in _PCIE.items()
    }


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


def _number(column: str, read: Callable[[Any], Any], period_s: float = 0.0) -> Call:
    return Call((column,), lambda handle: (int(read(handle)),), period_s)


def _busy(nvml: Nvml, handle: Any) -> tuple[Reading, Reading]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return _percent(rates.gpu), _percent(rates.memory)


def _percent(busy: int) -> Reading:
    if not 0 <= busy <= 100:
        return Unavailable(f"the driver reported {busy:g} %, which cannot be")
    return float(busy)


def _temperature(nvml: Nvml, handle: Any) -> Any:
    new, old = "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"
    return _newest(nvml, new, old, handle, _CORE_SENSOR)


def _throttle_reasons(nvml: Nvml, handle: Any) -> Any:
    new = "nvmlDeviceGetCurrentClocksEventReasons"
    return _newest(nvml, new, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)


def _newest(nvml: Nvml, new: str, old: str, *args: Any) -> Any:
    """Call `new`; where this nvidia-ml-py or the driver does not know it yet, `old`."""
    if hasattr(nvml, new):
        try:
            return getattr(nvml, new)(*args)
        except nvml.NVMLError as error:
            if not unavailable(error).for_good:
                raise
    return getattr(nvml, old)(*args)
