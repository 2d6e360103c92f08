"""Every column of the telemetry tables: its name, type, unit and meaning.

A row is one source at one moment: the host (`source = "host"`) or one GPU (its UUID). Columns of
the other kind are null in it. Null is "not measured" and never 0: `reasons.json` says why, except
for columns that are read once a second and null between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HOST = "host"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `unit` is for people; the unit also stands in the name where it has one."""

    name: str
    kind: Literal["int", "float", "text"]
    unit: str
    meaning: str


KEY_COLUMNS = (
    Column("t_s", "float", "s", "CLOCK_MONOTONIC of this host: time.monotonic, perf_counter"),
    Column("unix_s", "float", "s", "seconds since 1970 at the same moment"),
    Column("source", "text", "", "'host' or the UUID of a GPU"),
)

GPU_COLUMNS = (
    Column(
        "gpu_busy_pct",
        "float",
        "%",
        "share of the driver's last sample period (1/6 to 1 s) in which a kernel ran; says nothing "
        "about how many SMs it used (NVML utilization.gpu)",
    ),
    Column(
        "memory_busy_pct",
        "float",
        "%",
        "share of the same period in which memory was read or written (NVML utilization.memory)",
    ),
    Column("sm_active_pct", "float", "%", "SMs with a warp resident, mean over SMs (GPM SM_UTIL)"),
    Column("sm_occupancy_pct", "float", "%", "active warps / most possible (GPM SM_OCCUPANCY)"),
    Column("tensor_active_pct", "float", "%", "tensor pipes active, any type (GPM ANY_TENSOR)"),
    Column("tensor_hmma_active_pct", "float", "%", "of these FP16 and BF16 (GPM HMMA_TENSOR)"),
    Column("tensor_imma_active_pct", "float", "%", "of these integers (GPM IMMA_TENSOR)"),
    Column("tensor_dfma_active_pct", "float", "%", "of these FP64 (GPM DFMA_TENSOR)"),
    Column("tensor_dmma_active_pct", "float", "%", "of these FP64 (GPM DMMA_TENSOR)"),
    Column("integer_active_pct", "float", "%", "integer pipes active (GPM INTEGER)"),
    Column("fp16_active_pct", "float", "%", "FP16 pipes active, tensor left out (GPM FP16)"),
    Column("fp32_active_pct", "float", "%", "FP32 pipes active (GPM FP32)"),
    Column("fp64_active_pct", "float", "%", "FP64 pipes active, tensor left out (GPM FP64)"),
    Column("dram_active_pct", "float", "%", "memory bandwidth used / peak (GPM DRAM_BW_UTIL)"),
    Column("memory_used_bytes", "int", "bytes", "in use by all processes, driver's share left out"),
    Column("power_mw", "int", "mW", "board power; a one second average on newer chips"),
    Column(
        "energy_mj",
        "int",
        "mJ",
        "since the driver loaded, read once a second; may restart at 0",
    ),
    Column("sm_clock_mhz", "int", "MHz", "current clock of the SMs"),
    Column("memory_clock_mhz", "int", "MHz", "current clock of the memory"),
    Column("temperature_c", "int", "deg C", "GPU core"),
    Column(
        "throttle_reasons",
        "int",
        "bits",
        "0x1 idle, 0x2 application clocks, 0x4 power cap, 0x8 hardware slowdown, 0x10 sync boost, "
        "0x20 software thermal, 0x40 hardware thermal, 0x80 power brake, 0x100 display",
    ),
    Column(
        "pcie_tx_bytes_per_s",
        "float",
        "bytes/s",
        "from the GPU to the host (GPM PCIE_TX; on GPUs without GPM over 20 ms every 2 s)",
    ),
    Column("pcie_rx_bytes_per_s", "float", "bytes/s", "from the host to the GPU, likewise"),
    Column("nvlink_tx_bytes_per_s", "float", "bytes/s", "sent, all links (GPM NVLINK_TOTAL_TX)"),
    Column("nvlink_rx_bytes_per_s", "float", "bytes/s", "received, likewise"),
    Column("nvlink_tx_bytes", "int", "bytes", "payload sent since the driver loaded, read at 1 Hz"),
    Column("nvlink_rx_bytes", "int", "bytes", "payload received, likewise"),
    Column("gpu_processes", "int", "", "processes that compute on the GPU, read at 1 Hz"),
    Column(
        "foreign_processes",
        "int",
        "",
        "of these neither the watched process nor below it, read at 1 Hz",
    ),
)

HOST_COLUMNS = (
    Column("host_cpu_pct", "float", "%", "all cores together, 0 to 100, over the last 0.5 s"),
    Column("host_memory_used_bytes", "int", "bytes", "total minus available"),
    Column(
        "process_cpu_pct",
        "float",
        "%",
        "watched process tree, over the last 0.5 s; 100: one core",
    ),
    Column("process_rss_bytes", "int", "bytes", "sum over the same; shared pages count each time"),
    Column("cpu_energy_mj", "int", "mJ", "CPU packages by RAPL since sampling began, wraps undone"),
)

COLUMNS = (*KEY_COLUMNS, *GPU_COLUMNS, *HOST_COLUMNS)
GPU_NAMES = tuple(column.name for column in GPU_COLUMNS)
HOST_NAMES = tuple(column.name for column in HOST_COLUMNS)
