"""Every counter once, each with its value or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from profiles.telemetry.columns import COLUMNS, GPU_NAMES, HOST, HOST_NAMES
from profiles.telemetry.counters import Source, Value
from profiles.telemetry.nvml import Nvml, unavailable

WINDOW_S = 0.6  # GPM and the host's CPU counters compare two moments
_UNIT = {column.name: column.unit for column in COLUMNS}


def lines(
    sources: Sequence[Source], clock: Callable[[], float], sleep: Callable[[float], None]
) -> list[str]:
    """Sample `sources` twice and say what came of it, a line a counter under its source."""
    for source in sources:
        source.sample(clock(), full=True)
    sleep(WINDOW_S)
    said: list[str] = []
    for source in sources:
        began_s = clock()
        values = source.sample(began_s, full=True)
        full_ms, began_s = 1e3 * (clock() - began_s), clock()
        source.sample(began_s)
        said.append(
            f"{source.name}: all of it read in {full_ms:.1f} ms, what every tick reads in "
            f"{1e3 * (clock() - began_s):.1f} ms"
        )
        said += _counters(source, values)
    return said


def _counters(source: Source, values: Mapping[str, Value]) -> list[str]:
    missing = source.missing()
    said = []
    for name in HOST_NAMES if source.name == HOST else GPU_NAMES:
        value = values.get(name)
        if value is None:
            reason = missing[name].reason if name in missing else "no value yet"
            said.append(f"  {name:<24} missing: {reason}")
        else:
            number = f"{value:,}" if isinstance(value, int) else f"{value:g}"
            said.append(f"  {name:<24} {number} {_UNIT[name]}".rstrip())
    return said


def all_uuids(nvml: Nvml) -> list[str]:
    """UUIDs of every GPU that the driver shows. Raises Unavailable."""
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(k) for k in range(nvml.nvmlDeviceGetCount())]
        uuids = [nvml.nvmlDeviceGetUUID(handle) for handle in handles]
    except nvml.NVMLError as error:
        raise unavailable(error) from error
    return [uuid.decode() if isinstance(uuid, bytes) else uuid for uuid in uuids]
