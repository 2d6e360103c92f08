"""GPU Performance Monitoring of Hopper and newer: how busy the SMs and their parts are.

A value needs two samples that lie more than 100 ms apart (NVML API reference, GPM). At 10 Hz two
neighbours would sit on that edge, so every tick takes a sample and compares it with the youngest
that is at least `WINDOW_S` old: each value covers the window of about 0.2 s that ends at its row.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from profiles.telemetry.counters import Unavailable
from profiles.telemetry.nvml import Nvml, unavailable, unknown_call

_PERCENT = {  # column: NVML_GPM_METRIC_*
    "sm_active_pct": 2,
    "sm_occupancy_pct": 3,
    "tensor_active_pct": 5,
    "tensor_hmma_active_pct": 7,
    "tensor_imma_active_pct": 9,
    "tensor_dfma_active_pct": 6,
    "tensor_dmma_active_pct": 8,
    "integer_active_pct": 4,
    "fp16_active_pct": 13,
    "fp32_active_pct": 12,
    "fp64_active_pct": 11,
    "dram_active_pct": 10,
}
_MIB_PER_S = {
    "pcie_tx_bytes_per_s": 20,
    "pcie_rx_bytes_per_s": 21,
    "nvlink_tx_bytes_per_s": 61,
    "nvlink_rx_bytes_per_s": 60,
}
GPM_METRICS = _PERCENT | _MIB_PER_S
_MOST_MIB_PER_S = 2.0**24  # 16 TiB/s, over any link there is
WINDOW_S = 0.15
_METRICS_GET_VERSION = 1


class Gpm:
    """Rolling GPM samples of one GPU. Not thread-safe, as NVML's samples are not."""

    def __init__(self, nvml: Nvml, handle: Any, mode: str | None = None) -> None:
        """`mode` says why the GPU may not support GPM now, as `unavailable` takes it."""
        self._nvml = nvml
        self._mode = mode
        self._handle = handle
        self._taken: deque[tuple[float, Any]] = deque()  # (t_s, sample), oldest first
        self._spare: list[Any] = []
        self._request: Any = None
        self._answers: list[Any] = []
        self._refusal = self._ask_support()

    def sample(self, t_s: float) -> dict[str, float | Unavailable | None]:
        """Values by column; None until the window is filled, Unavailable with a reason."""
        if self._refusal is not None:
            return dict.fromkeys(GPM_METRICS, self._refusal)
        try:
            earlier = self._youngest_old_enough(t_s)
            later = self._take(t_s)
            if earlier is None:
                return dict.fromkeys(GPM_METRICS)
            return self._compare(earlier, later)
        except self._nvml.NVMLError as error:
            reason = unavailable(error, self._mode)
            if reason.for_good:
                self._refusal = reason
            self._spare += [sample for _, sample in self._taken]
            self._taken.clear()  # a window must not span a gap
            return dict.fromkeys(GPM_METRICS, reason)

    def close(self) -> None:
        """Free every sample buffer."""
        for buffer in [*self._spare, *(sample for _, sample in self._taken)]:
            try:
                self._nvml.nvmlGpmSampleFree(buffer)
            except self._nvml.NVMLError:
                break  # the driver is gone, and the buffers with it
        self._spare.clear()
        self._taken.clear()

    def _ask_support(self) -> Unavailable | None:
        try:
            supported = self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice
        except self._nvml.NVMLError as error:
            return unavailable(error, self._mode)
        except AttributeError as error:
            return unknown_call(error)
        if supported:
            return None
        words = f"GPM is refused: {self._mode}" if self._mode else "GPM needs a Hopper GPU or newer"
        return Unavailable(words, for_good=True)

    def _take(self, t_s: float) -> Any:
        buffer = self._spare.pop() if self._spare else self._nvml.nvmlGpmSampleAlloc()
        try:
            self._nvml.nvmlGpmSampleGet(self._handle, buffer)
        except self._nvml.NVMLError:
            self._spare.append(buffer)
            raise
        self._taken.append((t_s, buffer))
        return buffer

    def _youngest_old_enough(self, t_s: float) -> Any | None:
        """The sample to compare with; those older than it become spare buffers."""
        while len(self._taken) > 1 and t_s - self._taken[1][0] >= WINDOW_S:
            self._spare.append(self._taken.popleft()[1])
        if not self._taken or t_s - self._taken[0][0] < WINDOW_S:
            return None
        return self._taken[0][1]

    def _compare(self, earlier: Any, later: Any) -> dict[str, float | Unavailable | None]:
        if self._request is None:
            self._write_request()
        self._request.sample1 = earlier
        self._request.sample2 = later
        self._nvml.nvmlGpmMetricsGet(self._request)
        return {
            column: self._value(column, answer)
            for column, answer in zip(GPM_METRICS, self._answers, strict=True)
        }

    def _write_request(self) -> None:
        """Write it once: it holds 19 kB, and every answer is found in the same place again."""
        self._request = self._nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = _METRICS_GET_VERSION
        self._request.numMetrics = len(GPM_METRICS)
        self._answers = [self._request.metrics[slot] for slot in range(len(GPM_METRICS))]
        for answer, metric in zip(self._answers, GPM_METRICS.values(), strict=True):
            answer.metricId = metric

    def _value(self, column: str, metric: Any) -> float | Unavailable:
        if metric.nvmlReturn != 0:
            return unavailable(self._nvml.NVMLError(metric.nvmlReturn), self._mode)
        highest = 100.0 if column in _PERCENT else _MOST_MIB_PER_S
        value = float(metric.value)
        if not 0 <= value <= highest:  # NaN is refused too
            unit = "%" if column in _PERCENT else "MiB/s"
            return Unavailable(f"the driver reported {value:g} {unit}, which cannot be")
        return value * (1 if column in _PERCENT else 2**20)
