"""How many programs a device works on at once, one on each of its multiprocessors."""

from __future__ import annotations

from functools import cache

import torch

_OF_AN_H200 = 132


@cache
def processors(device: torch.device) -> int:
    """Return the multiprocessors of a CUDA device; of an H200 in the interpreter."""
    if device.type != "cuda":
        return _OF_AN_H200
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
