"""Counters of the host and of the watched process with its children.

CPU and memory are read twice a second and repeat in the rows between: the kernel counts CPU time
in ticks of some 10 ms, so shorter windows would show noise, and reading more often would cost the
host more than a sampler may. The energy counter is exact and read for every row.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import psutil

from profiles.telemetry.columns import HOST, HOST_NAMES
from profiles.telemetry.counters import Missing, MissingLog, Unavailable, Value
from profiles.telemetry.process_tree import process_tree
from profiles.telemetry.rapl import Rapl

_REFRESH_EVERY_S = 0.45  # a tick may come early, and 10 Hz should not slip to six ticks
_FAMILY_EVERY_S = 5.0


class Host:
    """The host's CPU, memory and energy, and the process tree below `pid`."""

    name = HOST

    def __init__(self, pid: int, rapl: Rapl | None = None) -> None:
        self._pid = pid
        self._rapl = rapl if rapl is not None else Rapl()
        self._log = MissingLog()
        self._values: dict[str, Value] = {}
        self._refreshed_t_s = -float("inf")
        self._family: dict[int, psutil.Process] = {}
        self._family_t_s = -float("inf")
        self._cpu_s: dict[int, float] = {}
        self._cpu_t_s: float | None = None
        psutil.cpu_percent()  # the first call only sets the start

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
        """Nothing is held."""

    def _refresh(self, t_s: float) -> dict[str, Value]:
        values: dict[str, Value] = dict.fromkeys(HOST_NAMES)
        values["host_cpu_pct"] = psutil.cpu_percent()
        memory = psutil.virtual_memory()
        values["host_memory_used_bytes"] = memory.total - memory.available
        try:
            values.update(self._sample_family(t_s))
        except Unavailable as error:
            self._log.note("process_cpu_pct", error, t_s)
            self._log.note("process_rss_bytes", error, t_s)
        return values

    def _energy_mj(self, t_s: float) -> int | None:
        if self._log.is_for_good("cpu_energy_mj"):
            return None
        try:
            return self._rapl.energy_mj()
        except Unavailable as error:
            self._log.note("cpu_energy_mj", error, t_s)
            return None

    def _sample_family(self, t_s: float) -> dict[str, Value]:
        if t_s - self._family_t_s >= _FAMILY_EVERY_S:
            self._find_family()
            self._family_t_s = t_s
        rss_bytes = 0
        cpu_s: dict[int, float] = {}
        for pid, process in list(self._family.items()):
            try:
                resident = process.memory_info().rss
                if not resident:  # NOTE only a zombie holds no memory: it has ended
                    continue
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                del self._family[pid]
                continue
            except psutil.AccessDenied as error:
                raise Unavailable(f"no permission to read process {pid}") from error
            rss_bytes += resident
            cpu_s[pid] = times.user + times.system
        if self._pid not in cpu_s:
            raise Unavailable(f"the watched process {self._pid} has ended")
        return {"process_rss_bytes": rss_bytes, "process_cpu_pct": self._cpu_pct(cpu_s, t_s)}

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
            try:
                self._family[pid] = psutil.Process(pid)
            except psutil.NoSuchProcess:
                continue
