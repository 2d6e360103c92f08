"""What a program may have in shared memory at once."""

from __future__ import annotations

import torch

_KEPT = 2048  # bytes that the program needs beside
_OF_AN_H200 = 233_472


def fitting_stages(wanted: int, stage_bytes: int, device: torch.device, beside: int = 0) -> int:
    """Return `wanted`, or as many stages of `stage_bytes` as there is room for beside others."""
    return max(1, min(wanted, (room(device) - beside) // stage_bytes))


def fits(size: int, device: torch.device) -> bool:
    """Whether a program on the device may hold `size` bytes."""
    return size <= room(device)


def room(device: torch.device) -> int:
    """Return the bytes of shared memory that a program may take."""
    if device.type != "cuda":  # the interpreter
        return _OF_AN_H200 - _KEPT
    held = torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor
    return int(held) - _KEPT
