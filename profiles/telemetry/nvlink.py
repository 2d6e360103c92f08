"""Bytes that went over a GPU's NVLinks, counted by the driver for each link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiles.telemetry.counters import Reading, Unavailable
from profiles.telemetry.nvml import Nvml, unavailable

_DATA_TX, _DATA_RX = 138, 139  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*, in KiB
_MOST_LINKS = 18  # of a GPU so far
_UNSIGNED = {1: "uiVal", 2: "ulVal", 3: "ullVal"}  # NVML_VALUE_TYPE_UNSIGNED_*


class NvLink:
    """Payload counters of one GPU, summed over the links that are up."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._links: list[int] | None = None

    def sent_and_received(self, handle: Any) -> tuple[Reading, Reading]:
        """Bytes since the driver loaded. Raises NVMLError, Unavailable."""
        if self._links is None:
            self._links = self._links_up(handle)
        if not self._links:
            raise Unavailable("no NVLink is up on this GPU", for_good=True)
        fields = [(field, link) for field in (_DATA_TX, _DATA_RX) for link in self._links]
        values = self._nvml.nvmlDeviceGetFieldValues(handle, fields)
        return self._sum(values[: len(self._links)]), self._sum(values[len(self._links) :])

    def _sum(self, values: Sequence[Any]) -> Reading:
        try:
            return 1024 * sum(self._read(value) for value in values)
        except (self._nvml.NVMLError, Unavailable) as error:
            return error

    def _links_up(self, handle: Any) -> list[int]:
        links = []
        for link in range(_MOST_LINKS):
            try:
                if self._nvml.nvmlDeviceGetNvLinkState(handle, link):
                    links.append(link)
            except self._nvml.NVMLError as error:
                if link == 0 or not unavailable(error).for_good:
                    raise
                break  # there are no more links than these
        return links

    def _read(self, value: Any) -> int:
        if value.nvmlReturn != 0:
            raise self._nvml.NVMLError(value.nvmlReturn)
        if value.valueType not in _UNSIGNED:
            raise Unavailable(f"the driver gave a value of type {value.valueType}", for_good=True)
        return int(getattr(value.value, _UNSIGNED[value.valueType]))
