"""Counters of the host and of the watched process with its children.

CPU and memory are read twice a second and repeat in the rows between: the kernel counts CPU time
in ticks of some 10 ms, so shorter windows would show noise, and reading more often would cost the
host more than a sampler may. The energy counter is exact and read for every row.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from profiles.telemetry.columns import HOST, HOST_NAMES
from profiles.telemetry.counters import Missing, MissingLog, Unavailable, Value
from profiles.telemetry.proc import ProcFile, cpu_ticks, memory_used_bytes, usage
from profiles.telemetry.process_tree import process_tree
from profiles.telemetry.rapl import Rapl

_REFRESH_EVERY_S = 0.45  # a tick may come early, and 10 Hz should not slip to six ticks
_FAMILY_EVERY_S = 5.0


class Host:
    """The host's CPU, memory and energy, and the process tree below `pid`."""

    name = HOST

    def __init__(self, pid: int, rapl: Rapl | None = None, proc: Path = Path("/proc")) -> None:
        self._pid = pid
        self._proc = proc
        self._rapl = rapl if rapl is not None else Rapl()
        self._log = MissingLog()
        self._values: dict[str, Value] = {}
        self._refreshed_t_s = -float("inf")
        self._stat, self._meminfo = ProcFile(proc / "stat"), ProcFile(proc / "meminfo")
        self._ticks = cpu_ticks(self._stat.beginning())
        self._family: dict[int, ProcFile] = {}
        self._family_t_s = -float("inf")
        self._cpu_s: dict[int, float] = {}
        self._cpu_t_s: float | None = None

    def sample(self, t_s: float, full: bool = False) -> Mapping[str, Value]:
        """Every host column; None where there is no value, with its reason noted."""
        if full or t_s - self._refreshed_t_s >= _REFRESH_EVERY_S:
            self._values = self._refresh(t_s)
            self._refreshed_t_s = t_s
        return {**self._values, "cpu_energy_mj": self._energy_mj(t_s)}

    def missing(self) -> Mapping[str, Missing]:
        """Columns without a value at least once, with the latest reason."""
        return self._log.missing()

    def close(self) -> None:
        """Close the files of /proc."""
        for file in (self._stat, self._meminfo, *self._family.values()):
            file.close()
        self._family.clear()

    def _refresh(self, t_s: float) -> dict[str, Value]:
        values: dict[str, Value] = dict.fromkeys(HOST_NAMES)
        for columns, read in (
            (("host_cpu_pct",), self._host_cpu_pct),
            (("host_memory_used_bytes",), self._memory_used_bytes),
            (("process_cpu_pct", "process_rss_bytes"), lambda: self._sample_family(t_s)),
        ):
            try:
                values.update(zip(columns, read(), strict=True))
            except Unavailable as error:
                for column in columns:
                    self._log.note(column, error, t_s)
        return values

    def _host_cpu_pct(self) -> tuple[float]:
        before, self._ticks = self._ticks, cpu_ticks(self._stat.beginning())
        busy, total = self._ticks.busy - before.busy, self._ticks.total - before.total
        if total <= 0:
            raise Unavailable("the kernel has counted no time since the last sample")
        return (100.0 * min(max(busy / total, 0.0), 1.0),)

    def _memory_used_bytes(self) -> tuple[int]:
        return (memory_used_bytes(self._meminfo.beginning()),)

    def _energy_mj(self, t_s: float) -> int | None:
        if self._log.is_for_good("cpu_energy_mj"):
            return None
        try:
            return self._rapl.energy_mj()
        except Unavailable as error:
            self._log.note("cpu_energy_mj", error, t_s)
            return None

    def _sample_family(self, t_s: float) -> tuple[float | None, int]:
        if t_s - self._family_t_s >= _FAMILY_EVERY_S:
            self._find_family()
            self._family_t_s = t_s
        rss_bytes = 0
        cpu_s: dict[int, float] = {}
        for pid, file in list(self._family.items()):
            try:
                used = usage(file.beginning())
            except OSError:
                file.close()
                del self._family[pid]
                continue
            if used.rss_bytes:  # NOTE only a zombie holds no memory: it has ended
                rss_bytes += used.rss_bytes
                cpu_s[pid] = used.cpu_s
        if self._pid not in cpu_s:
            raise Unavailable(f"the watched process {self._pid} has ended")
        return self._cpu_pct(cpu_s, t_s), rss_bytes

    def _cpu_pct(self, cpu_s: dict[int, float], t_s: float) -> float | None:
        """CPU seconds since the last tick / elapsed; members that are new start at zero cost."""
        before, before_t_s = self._cpu_s, self._cpu_t_s
        self._cpu_s, self._cpu_t_s = cpu_s, t_s
        if before_t_s is None or t_s <= before_t_s:
            return None
        used_s = sum(now - before[pid] for pid, now in cpu_s.items() if pid in before)
        return 100.0 * used_s / (t_s - before_t_s)

    def _find_family(self) -> None:
        """Refresh the process tree, this process (the sampler) left out."""
        pids = process_tree(self._pid) - {os.getpid()} | {self._pid}
        for pid in pids - self._family.keys():
            path = self._proc / str(pid) / "stat"
            try:
                self._family[pid] = ProcFile(path)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
            except OSError as error:
                raise Unavailable(f"{path} cannot be opened: {error.strerror}") from error
