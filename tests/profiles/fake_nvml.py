"""An NVML without a GPU: the functions of `pynvml` in use, any of which can refuse.

`refuse` maps a function to the NVML error code it raises, and may be changed between calls.
`calls` counts the calls of each function.
"""

# ruff: noqa: N815  the names are NVIDIA's

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from pynvml import NVMLError, c_nvmlGpmMetric_t


class _MetricsGet(SimpleNamespace):
    def __init__(self) -> None:
        super().__init__(metrics=[c_nvmlGpmMetric_t() for _ in range(16)])


class FakeNvml:
    NVMLError = NVMLError
    nvmlMemory_v2 = 2
    c_nvmlGpmMetricsGet_t = _MetricsGet

    def __init__(self, uuids=("GPU-a",), refuse=None, gpm=True):
        self.uuids = list(uuids)
        self.refuse = dict(refuse or {})
        self.gpm = gpm
        self.calls = Counter()
        self.busy = 40
        self.energy_mj = 1000
        self.gpm_values = {2: 50.0, 3: 25.0, 5: 12.5, 10: 75.0}
        self.gpm_returns = {}
        self.buffers = set()
        self.gpm_pairs = []

    def _called(self, name):
        self.calls[name] += 1
        if name in self.refuse:
            raise NVMLError(self.refuse[name])

    def nvmlInit(self):
        self._called("nvmlInit")

    def nvmlShutdown(self):
        self._called("nvmlShutdown")

    def nvmlSystemGetDriverVersion(self):
        return "580.1"

    def nvmlDeviceGetCount(self):
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.uuids[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self._called("nvmlDeviceGetHandleByUUID")
        if uuid not in self.uuids:
            raise NVMLError(6)
        return uuid

    def nvmlDeviceGetUUID(self, handle):
        return handle

    def nvmlDeviceGetName(self, handle):
        return b"NVIDIA H100"  # older pynvml gives bytes

    def nvmlDeviceGetUtilizationRates(self, handle):
        self._called("nvmlDeviceGetUtilizationRates")
        return SimpleNamespace(gpu=self.busy, memory=1)

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):
        self._called("nvmlDeviceGetMemoryInfo")
        self._called("memory v2" if version else "memory v1")
        return SimpleNamespace(total=80 << 30, used=(1 << 30) if version else (2 << 30))

    def nvmlDeviceGetPowerUsage(self, handle):
        self._called("nvmlDeviceGetPowerUsage")
        return 300_000

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        self._called("nvmlDeviceGetTotalEnergyConsumption")
        return self.energy_mj

    def nvmlDeviceGetClockInfo(self, handle, clock):
        self._called("nvmlDeviceGetClockInfo")
        return {1: 1980}[clock]

    def nvmlDeviceGetTemperatureV(self, handle, sensor):
        self._called("nvmlDeviceGetTemperatureV")
        return 61

    def nvmlDeviceGetTemperature(self, handle, sensor):
        self._called("nvmlDeviceGetTemperature")
        return 60

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        self._called("nvmlDeviceGetCurrentClocksEventReasons")
        return 4

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        self._called("nvmlDeviceGetCurrentClocksThrottleReasons")
        return 8

    def nvmlGpmQueryDeviceSupport(self, handle):
        self._called("nvmlGpmQueryDeviceSupport")
        return SimpleNamespace(isSupportedDevice=int(self.gpm))

    def nvmlGpmSampleAlloc(self):
        self._called("nvmlGpmSampleAlloc")
        buffer = SimpleNamespace(taken=None)
        self.buffers.add(id(buffer))
        return buffer

    def nvmlGpmSampleGet(self, handle, buffer):
        self._called("nvmlGpmSampleGet")
        buffer.taken = self.calls["nvmlGpmSampleGet"]
        return buffer

    def nvmlGpmMetricsGet(self, request):
        self._called("nvmlGpmMetricsGet")
        self.gpm_pairs.append((request.sample1.taken, request.sample2.taken))
        for metric in request.metrics[: request.numMetrics]:
            metric.value = self.gpm_values[metric.metricId]
            metric.nvmlReturn = self.gpm_returns.get(metric.metricId, 0)
        return request

    def nvmlGpmSampleFree(self, buffer):
        self._called("nvmlGpmSampleFree")
        self.buffers.remove(id(buffer))
