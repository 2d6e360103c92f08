"""A run on disk: what was asked for, and where it was measured."""

from __future__ import annotations

from typing import Literal

from profiles.records.base import Record


class GpuInfo(Record):
    """One GPU as NVML names it."""

    uuid: str
    name: str
    memory_total_bytes: int | None
    driver: str | None


class Hardware(Record):
    """Fingerprint of the host a run was measured on."""

    cpu: str
    cores: int
    memory_total_bytes: int
    gpus: list[GpuInfo] = []
    gpu_reason: str | None = None  # why there are none


class RunRecord(Record):
    """`run.json`: what was asked for, and where it was measured."""

    run_id: str
    kind: Literal["run", "sweep"]
    created_at: str
    spec: dict[str, object]
    versions: dict[str, str]
    git_sha: str | None
    hardware: Hardware
    seed: int
    workload_hash: str
