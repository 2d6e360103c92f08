"""What a program may have in shared memory at once."""

from __future__ import annotations

import torch

_KEPT = 2048  # bytes that the program needs beside
_OF_AN_H200 = 233_472


def fitting_stages(wanted: int, stage_bytes: int, device: torch.device) -> int:
    """Return `wanted`, or as many stages of `stage_bytes` as the device has room for."""
    return max(1, min(wanted, _room(device) // stage_bytes))


def fits(size: int, device: torch.device) -> bool:
    """Whether a program on the device may hold `size` bytes."""
    return size <= _room(device)


def _room(device: torch.device) -> int:
    if device.type != "cuda":  # the interpreter
        return _OF_AN_H200 - _KEPT
    held = torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor
    return int(held) - _KEPT
