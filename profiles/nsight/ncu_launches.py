"""Kernel launches that Nsight Compute profiled, and their metrics in base units."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from profiles.nsight.ncu_units import base_unit
from profiles.nsight.reading import Reading

_TRIPLE = re.compile(r"\(?\s*(\d+)\s*[,;x]\s*(\d+)\s*[,;x]\s*(\d+)\s*\)?")
_DURATIONS = ("gpu__time_duration.sum", "Duration", "gpu__time_duration.avg")
_REGISTERS = ("launch__registers_per_thread", "Registers Per Thread")
_METRICS = ["launch_id", "section", "metric", "unit", "value", "text"]
_KERNELS = [
    "launch_id",
    "name",
    "pid",
    "device",
    "gpu",
    "context",
    "stream",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "duration_ns",
    "registers_per_thread",
]
_base_unit = lru_cache(maxsize=1024)(base_unit)


class LaunchTables:
    """Collects launches row by row, then fills `kernels`, `launch_metrics` and `diagnostics`."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._launches: dict[tuple[str, str], int] = {}
        self._kernels: list[tuple[object, ...]] = []
        self._durations: dict[int, float] = {}
        self._registers: dict[int, float] = {}
        self._metrics: list[tuple[object, ...]] = []
        self._advice: list[tuple[object, ...]] = []
        self._unread = self._without_unit = 0

    def launch(self, row: Mapping[str, str]) -> int:
        """The number of the launch that a row belongs to, counted as the report does."""
        key = (row["ID"], row["Kernel Name"])
        if key not in self._launches:
            number = _integer(row["ID"])
            if number is None or any(number == taken for taken in self._launches.values()):
                self._reading.problem("launches are numbered twice or not at all")
                number = max(self._launches.values(), default=-1) + 1
            self._launches[key] = number
            device = _integer(row.get("Device", ""))
            places = [_integer(row.get(name, "")) for name in ("Context", "Stream")]
            pid = _integer(row.get("Process ID", ""))
            grid, block = _three(row.get("Grid Size", "")), _three(row.get("Block Size", ""))
            name = row["Kernel Name"] or None
            self._kernels.append((number, name, pid, device, device, *places, *grid, *block))
        return self._launches[key]

    def metric(
        self,
        launch: int,
        section: str,
        name: str,
        unit: str | None,
        number: float | None,
        cell: str,
        unread: bool,
    ) -> None:
        """Keep one metric; `unread`: its cell was meant as a number and could not be read."""
        if len(self._metrics) >= self._reading.max_rows:
            self._reading.problem(f"only the first {self._reading.max_rows:,} metrics were read")
            return
        base, scale = _base_unit(unit) if unit is not None else (None, 1.0)
        value = None if number is None else round(number * scale, 9)
        self._unread += unread
        self._without_unit += unit is None
        text = None if number is not None or not cell else cell[:400]
        self._metrics.append((launch, section or None, name, base or None, value, text))
        if value is not None and base == "ns" and name in _DURATIONS:
            self._durations.setdefault(launch, value)
        if value is not None and name in _REGISTERS:
            self._registers[launch] = value

    def advice(self, rule: str, description: str) -> None:
        """Keep what a rule of Nsight Compute says about a launch."""
        if len(self._advice) < 10_000:
            source = f"Nsight Compute rule {rule}"[:200]
            self._advice.append((None, "info", source, description[:4000]))

    def finish(self) -> None:
        """Hand the tables over."""
        reading = self._reading
        if self._unread:
            reading.problem(f"{self._unread} numbers could not be read")
        if self._without_unit:
            reading.problem("the row or column of units is missing: times and sizes are unknown")
        self._note_short_launch()
        kernels = [
            (*kernel, self._whole(self._durations, kernel), self._whole(self._registers, kernel))
            for kernel in self._kernels
        ]
        reading.add_rows("kernels", _KERNELS, kernels)
        reading.add_rows("launch_metrics", _METRICS, self._metrics)
        columns = ["timestamp_ns", "severity", "source", "text"]
        reading.add_rows("diagnostics", columns, self._advice)
        reading.missing["gpu_busy"] = "Nsight Compute runs kernels one by one: there is no timeline"
        if kernels:
            reading.info(
                "Nsight Compute holds the clocks and replays kernels: durations differ from a "
                "timeline's; details pages are rounded to three or four digits"
            )

    def _note_short_launch(self) -> None:
        counts = Counter(row[0] for row in self._metrics)
        if counts and counts[self._metrics[-1][0]] < max(counts.values()):
            self._reading.warn(
                "the last launch has fewer metrics than others: the file may be cut short"
            )

    def _whole(self, by_launch: dict[int, float], kernel: tuple[object, ...]) -> int | None:
        value = by_launch.get(kernel[0])  # type: ignore[call-overload]
        if value is not None and not 0 <= value < 2**62:
            self._reading.problem("a duration or a number of registers is impossible")
            return None
        return None if value is None else round(value)


def _integer(cell: str) -> int | None:
    return int(cell) if re.fullmatch(r"\d{1,18}", cell.strip()) else None


def _three(cell: str) -> tuple[int | None, int | None, int | None]:
    found = _TRIPLE.fullmatch(cell.strip())
    if not found or max(map(len, found.groups())) > 12:
        return None, None, None
    return int(found[1]), int(found[2]), int(found[3])
