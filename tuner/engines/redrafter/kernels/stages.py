"""How many blocks a program may have on their way into shared memory at once."""

from __future__ import annotations

import torch

_KEPT = 2048  # bytes that the program needs beside


def fitting_stages(wanted: int, stage_bytes: int, device: torch.device) -> int:
    """Return `wanted`, or as many stages of `stage_bytes` as the device has room for."""
    if device.type != "cuda":  # the interpreter
        return wanted
    held = torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor
    return max(1, min(wanted, (int(held) - _KEPT) // stage_bytes))
