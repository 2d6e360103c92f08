"""Energy of the CPU packages by RAPL, Linux's powercap interface.

`/sys/class/powercap/intel-rapl:<package>/energy_uj` counts microjoules and wraps at
`max_energy_range_uj` (kernel docs, power/powercap). AMD's packages appear under the same name.
Since Linux 5.10 only root may read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from profiles.telemetry.counters import Unavailable


@dataclass(slots=True)
class _Package:
    energy_path: Path
    range_uj: int
    last_uj: int
    used_uj: int = 0

    def read(self) -> int:
        now_uj = int(self.energy_path.read_text())
        self.used_uj += (now_uj - self.last_uj) % (self.range_uj + 1)
        self.last_uj = now_uj
        return self.used_uj


class Rapl:
    """Sum over CPU packages since this object was made."""

    def __init__(self, root: Path = Path("/sys/class/powercap")) -> None:
        self._refusal: Unavailable | None = None
        self._packages: list[_Package] = []
        folders = sorted(root.glob("intel-rapl:*"))
        try:
            # NOTE intel-rapl:0:1 and the like are parts of package 0 and would count twice.
            self._packages = [_open(folder) for folder in folders if folder.name.count(":") == 1]
        except OSError as error:
            self._refusal = Unavailable(
                f"{error.filename}: {error.strerror}; reading RAPL needs root", for_good=True
            )
        if not self._packages and self._refusal is None:
            self._refusal = Unavailable(f"no RAPL counters under {root}", for_good=True)

    def energy_mj(self) -> int:
        """Millijoules used since the start.

        Raises:
            Unavailable: the host has no counters, or they may not be read.
        """
        if self._refusal is not None:
            raise self._refusal
        try:
            return sum(package.read() for package in self._packages) // 1000
        except OSError as error:
            raise Unavailable(f"RAPL cannot be read: {error.strerror}") from error


def _open(folder: Path) -> _Package:
    energy_path = folder / "energy_uj"
    return _Package(
        energy_path=energy_path,
        range_uj=int((folder / "max_energy_range_uj").read_text()),
        last_uj=int(energy_path.read_text()),
    )
