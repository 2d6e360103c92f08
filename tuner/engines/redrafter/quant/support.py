"""Which quantized precision runs on which device, and why another does not."""

from __future__ import annotations

from collections.abc import Callable

import torch

QUANTIZED = ("fp8", "int8_sq", "int4_awq")
_LEAST_CAPABILITY = {"fp8": (8, 9), "int8_sq": (8, 0), "int4_awq": (8, 0)}


def refused(device: torch.device, instead: str = "use bf16") -> dict[str, str]:
    """Return the quantized precisions that `device` cannot run, each with its reason.

    `instead` says what to do.
    """
    if device.type != "cuda":
        return _named(lambda precision: f"{_reason_on_cpu(precision)}, {instead}")
    return refused_by_card(
        torch.cuda.get_device_capability(device), torch.cuda.get_device_name(device), instead
    )


def refused_by_card(
    capability: tuple[int, int], name: str, instead: str = "use bf16"
) -> dict[str, str]:
    """Return the same of a GPU called `name` with this compute capability."""

    def reason(precision: str) -> str | None:
        if capability >= _LEAST_CAPABILITY[precision]:
            return None
        return f"{_needs(precision)}, {name} has {capability[0]}.{capability[1]}; {instead}"

    return _named(reason)


def _named(reason: Callable[[str], str | None]) -> dict[str, str]:
    reasons = {precision: reason(precision) for precision in QUANTIZED}
    return {precision: text for precision, text in reasons.items() if text}


def _needs(precision: str) -> str:
    major, minor = _LEAST_CAPABILITY[precision]
    return f"needs an NVIDIA GPU of compute capability {major}.{minor} or higher"


def _reason_on_cpu(precision: str) -> str:
    return f"{_needs(precision)}; torch has no product of its own for it on the CPU"
