"""One name, with its unit, for every spelling of an Nsight GPU metric.

Nsight Systems writes the unit in brackets: `SMs Active [Throughput %]`, `GPC Clock Frequency
[MHz]`. The same words come with several units, so only the whole name says which metric it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SPELLINGS = {
    "sms_active": "sm_active",
    "tensor_active_fp16_active": "tensor_active",
    "dram_read_bandwidth": "dram_read",
    "dram_read_throughput": "dram_read",
    "dram_write_bandwidth": "dram_write",
    "dram_write_throughput": "dram_write",
    "pcie_rx_throughput": "pcie_rx",
    "pcie_tx_throughput": "pcie_tx",
    "gpc_clock_frequency": "gpc_clock",
    "sys_clock_frequency": "sys_clock",
}


@dataclass(frozen=True, slots=True)
class MetricName:
    """Our name for a metric and what its stored values are multiplied with."""

    name: str
    scale: float = 1.0
    is_percent: bool = False


def metric_name(raw: str) -> MetricName:
    """Name a metric. Without a unit in brackets, as before 2022, `_unit_unknown` ends the name."""
    words, _, bracket = raw.partition("[")
    unit = bracket.strip().removesuffix("]").strip()
    slug = _slug(words)
    slug = _SPELLINGS.get(slug, slug)
    if unit == "Throughput %":
        return MetricName(f"{slug}_pct", is_percent=True)
    if unit == "MHz":
        return MetricName(f"{slug}_mhz", scale=1e-6)  # NOTE the values are stored in Hz
    if unit:
        return MetricName(f"{slug}_{_slug(unit.replace('%', 'pct'))}")
    return MetricName(f"{slug}_unit_unknown")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:100] or "unnamed"
