"""Fingerprint of the host and of the software that a run was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import psutil

from profiles.records import GpuInfo, Hardware
from profiles.telemetry.counters import Unavailable
from profiles.telemetry.gpu_calls import memory_info
from profiles.telemetry.nvml import Nvml, start_nvml, unavailable

PACKAGES = (
    "torch",
    "triton",
    "transformers",
    "tokenizers",
    "safetensors",
    "tensorrt-llm",
    "tensorrt",
    "flashinfer-python",
    "humming-kernels",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "optuna",
    "streamlit",
    "plotly",
    "nvidia-ml-py",
    "psutil",
)


def fingerprint(nvml: Nvml = None, cpuinfo: Path = Path("/proc/cpuinfo")) -> Hardware:
    """Describe this host. Never raises: a host without GPUs gives `gpu_reason`.

    `cores` are those this process may run on. `nvml` stands in for `pynvml`.
    """
    gpus, reason = _gpus(nvml)
    return Hardware(
        cpu=_cpu_model(cpuinfo),
        cores=_usable_cores(),
        memory_total_bytes=psutil.virtual_memory().total,
        gpus=gpus,
        gpu_reason=reason,
    )


def versions() -> dict[str, str]:
    """Python's version and those of installed packages that matter, none of them imported."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_sha(root: Path) -> str | None:
    """Commit that `root`, the top of a checkout, is at; `-dirty` is added to one with changes.

    None where `root` is no checkout of its own, holds no commit, or git is not installed.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root.resolve():
        return None
    return _git(root, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},  # look only: others commit beside us
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model(cpuinfo: Path) -> str:
    """The model's name: x86 says it in cpuinfo, other processors often do not."""
    try:
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def _gpus(nvml: Nvml) -> tuple[list[GpuInfo], str | None]:
    try:
        nvml = start_nvml(nvml)
    except Unavailable as error:
        return [], error.reason
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        gpus = [_gpu(nvml, index, driver) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        return [], unavailable(error).reason
    finally:
        nvml.nvmlShutdown()
    return gpus, None if gpus else "the driver sees no GPU"


def _gpu(nvml: Nvml, index: int, driver: str) -> GpuInfo:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        total = int(memory_info(nvml, handle).total)
    except nvml.NVMLError:  # memory shared with the host has no total of its own
        total = None
    return GpuInfo(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_total_bytes=total,
        driver=driver,
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
