"""An NVML without a GPU: the functions of `pynvml` in use, every one of which can refuse.

`refuse` maps a function to the NVML error code it raises, and may be changed between calls.
`calls` counts the calls of each function. Both work on any function whose name begins with
"nvml", and on the few finer names that `_called` is given below. `unknown` names functions that an
older nvidia-ml-py does not have.
"""

# ruff: noqa: N815  the names are NVIDIA's

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from pynvml import NVMLError, c_nvmlGpmMetric_t


class _MetricsGet(SimpleNamespace):
    def __init__(self) -> None:
        super().__init__(metrics=[c_nvmlGpmMetric_t() for _ in range(32)])


class FakeNvml:
    NVMLError = NVMLError
    nvmlMemory_v2 = 2
    c_nvmlGpmMetricsGet_t = _MetricsGet

    def __init__(self, uuids=("GPU-a",), refuse=None, gpm=True):
        self.uuids = list(uuids)
        self.refuse = dict(refuse or {})
        self.unknown = set()
        self.gpm = gpm
        self.calls = Counter()
        self.busy = 40
        self.energy_mj = 1000
        self.gpm_values = {2: 50.0, 3: 25.0, 5: 12.5, 10: 75.0}
        self.gpm_values |= {4: 4.0, 6: 0.0, 7: 12.0, 8: 0.25, 9: 0.5, 11: 1.0, 12: 2.0, 13: 3.0}
        self.gpm_values |= {20: 10.0, 21: 20.0, 60: 30.0, 61: 40.0}
        self.mig = False
        self.links_up = 2
        self.link_returns = {}
        self.pids = [100, 200]
        self.gpm_returns = {}
        self.buffers = set()
        self.gpm_pairs = []

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in self.unknown:
            raise AttributeError(f"no attribute {name!r}", name=name)
        found = super().__getattribute__(name)
        if not name.startswith("nvml") or not callable(found):
            return found

        def call(*args, **kwargs):
            self._called(name)
            return found(*args, **kwargs)

        return call

    def _called(self, name):
        self.calls[name] += 1
        if name in self.refuse:
            raise NVMLError(self.refuse[name])

    def nvmlInit(self):
        pass

    def nvmlShutdown(self):
        pass

    def nvmlSystemGetDriverVersion(self):
        return "580.1"

    def nvmlDeviceGetCount(self):
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.uuids[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid not in self.uuids:
            raise NVMLError(6)
        return uuid

    def nvmlDeviceGetUUID(self, handle):
        return handle

    def nvmlDeviceGetName(self, handle):
        return b"NVIDIA H100"  # older pynvml gives bytes

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=self.busy, memory=15)

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):
        self._called("memory v2" if version else "memory v1")
        return SimpleNamespace(total=80 << 30, used=(1 << 30) if version else (2 << 30))

    def nvmlDeviceGetPowerUsage(self, handle):
        return 300_000

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return self.energy_mj

    def nvmlDeviceGetClockInfo(self, handle, clock):
        return {1: 1980, 2: 3201}[clock]

    def nvmlDeviceGetTemperatureV(self, handle, sensor):
        return 61

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return 60

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return 4

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return 8

    def nvmlGpmQueryDeviceSupport(self, handle):
        return SimpleNamespace(isSupportedDevice=int(self.gpm))

    def nvmlGpmSampleAlloc(self):
        buffer = SimpleNamespace(taken=None)
        self.buffers.add(id(buffer))
        return buffer

    def nvmlGpmSampleGet(self, handle, buffer):
        buffer.taken = self.calls["nvmlGpmSampleGet"]
        return buffer

    def nvmlGpmMetricsGet(self, request):
        self.gpm_pairs.append((request.sample1.taken, request.sample2.taken))
        for metric in request.metrics[: request.numMetrics]:
            metric.value = self.gpm_values[metric.metricId]
            metric.nvmlReturn = self.gpm_returns.get(metric.metricId, 0)
        return request

    def nvmlGpmSampleFree(self, buffer):
        self.buffers.remove(id(buffer))

    def nvmlDeviceGetMigMode(self, handle):
        return [int(self.mig), int(self.mig)]

    def nvmlDeviceGetPcieThroughput(self, handle, direction):
        return {0: 5, 1: 6}[direction]

    def nvmlDeviceGetNvLinkState(self, handle, link):
        if link >= 4:
            raise NVMLError(2)
        return int(link < self.links_up)

    def nvmlDeviceGetFieldValues(self, handle, fields):
        return [
            SimpleNamespace(
                nvmlReturn=self.link_returns.get(link, 0),
                valueType=3,
                value=SimpleNamespace(ullVal=field * 100 + link),
            )
            for field, link in fields
        ]

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid, usedGpuMemory=1 << 30) for pid in self.pids]
