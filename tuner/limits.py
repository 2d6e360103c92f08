"""What a device can do at best, measured in about a second: read bandwidth and matrix products.

Rooflines compare with these numbers and never with a data sheet. `python -m tuner.limits` prints
those of this host.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from profiles.records import DeviceLimits
from tuner.errors import TunerError

if TYPE_CHECKING:
    import torch

PROBE_S = 0.2
_GROUP_S = 0.02  # of calls between two looks at the clock, so that looking costs nothing
_STREAM_BYTES = {"cuda": 2**31, "cpu": 2**27}  # far beyond the caches
_ROWS = {"cuda": 8192, "cpu": 1024}  # of the square matrices that are multiplied

Probe = Callable[[], object]


@lru_cache
def device_limits(device_name: str, precision: str) -> DeviceLimits:
    """Measure the device called `device_name`, once a process; nothing else should run on it.

    What cannot be measured is null with its reason.

    Raises:
        BadInput, UnsupportedConfig: no such device.
    """
    from tuner.engines.redrafter.engine import pick_device

    device = pick_device(device_name)
    arithmetic = _arithmetic(precision, device)
    flop = 2.0 * _ROWS[device.type] ** 3
    reasons: list[str] = []
    read = _measured("read bandwidth", lambda: read_bandwidth(device), reasons)
    rate = _measured(
        f"{arithmetic} products",
        lambda: flop / best_s(_product(arithmetic, device), device),
        reasons,
    )
    _forget(device)
    return DeviceLimits(
        device=str(device),
        matmul=arithmetic,
        read_bytes_per_s=read,
        matmul_flop_per_s=rate,
        reason="; ".join(reasons) or None,
    )


@lru_cache
def read_bandwidth(device: torch.device) -> float:
    """Bytes/s of the best of three streams: a copy (read plus written), a product, a sum.

    Raises RuntimeError where memory is short.
    """
    import torch

    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    side = int((_stream_bytes(device) // dtype.itemsize) ** 0.5)
    matrix = torch.ones(side, side, device=device, dtype=dtype)
    vector, other = matrix[0].clone(), torch.empty_like(matrix)
    streams: list[tuple[int, Probe]] = [
        (2, lambda: other.copy_(matrix)),
        (1, lambda: matrix.mv(vector)),
        (1, matrix.sum),
    ]
    return max(times * matrix.nbytes / best_s(stream, device) for times, stream in streams)


def best_s(probe: Probe, device: torch.device, budget_s: float = PROBE_S) -> float:
    """Seconds of one call in the fastest group of calls within about `budget_s`."""
    once_s = _group_s(probe, 1, device)  # also what is done only the first time
    once_s = _group_s(probe, 1, device)
    calls = max(1, int(_GROUP_S / once_s))
    until_s = time.perf_counter() + budget_s
    best = once_s
    while time.perf_counter() < until_s:
        best = min(best, _group_s(probe, calls, device) / calls)
    return best


def _group_s(probe: Probe, calls: int, device: torch.device) -> float:
    _wait(device)
    began_s = time.perf_counter()
    for _ in range(calls):
        probe()
    _wait(device)
    return time.perf_counter() - began_s


def _wait(device: torch.device) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _forget(device: torch.device) -> None:
    """Give memory back, so that neither room nor peak of a later trial shows the probes."""
    import torch

    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _stream_bytes(device: torch.device) -> int:
    """Bytes to stream: at most a quarter of what is free, as a copy holds them twice."""
    import psutil
    import torch

    free = (
        torch.cuda.mem_get_info(device)[0]
        if device.type == "cuda"
        else psutil.virtual_memory().available
    )
    return min(_STREAM_BYTES[device.type], free // 4)


def _arithmetic(precision: str, device: torch.device) -> str:
    """How our engine multiplies in `precision`; kinds that quantize only weights do it in bf16."""
    from tuner.engines.redrafter.linear import DTYPES, compute_path

    if precision == "int8_sq":
        return "int8" if device.type == "cuda" else "int8 packed"
    if precision == "fp8" and device.type == "cuda":
        return "fp8"
    plain = precision if precision in DTYPES else "bf16"
    return "fp16 packed" if compute_path(plain, device).packed else plain


def _product(arithmetic: str, device: torch.device) -> Probe:
    """A product of two square matrices, ready to call."""
    import torch

    from tuner.engines.redrafter.linear import DTYPES

    rows = _ROWS[device.type]
    a = torch.randn(rows, rows, device=device)
    if arithmetic == "fp16 packed":
        packed = torch.ops.quantized.linear_prepack_fp16(a, None)
        return lambda: torch.ops.quantized.linear_dynamic_fp16(a, packed)
    if arithmetic == "int8 packed":
        with warnings.catch_warnings(action="ignore"):  # torch means to move these elsewhere
            codes = torch.quantize_per_tensor(a, 0.05, 0, torch.qint8)
            packed = torch.ops.quantized.linear_prepack(codes, None)
        return lambda: torch.ops.quantized.linear_dynamic(a, packed)
    if arithmetic == "int8":
        eight = (a * 32).to(torch.int8)
        return lambda: torch._int_mm(eight, eight.t())
    if arithmetic == "fp8":
        scale = torch.ones((), device=device)
        small = a.to(torch.float8_e4m3fn)
        return lambda: torch._scaled_mm(
            small, small.t(), scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    cast = a.to(DTYPES[arithmetic])
    return lambda: cast @ cast


def _measured(what: str, measure: Callable[[], float], reasons: list[str]) -> float | None:
    try:
        return measure()
    except RuntimeError as error:  # out of memory, or products this device does not have
        reasons.append(f"{what} could not be measured: {str(error).splitlines()[0]}")
        return None


def main() -> None:
    """Print the limits of one device for some precisions, one JSON object a line."""
    parser = argparse.ArgumentParser(prog="python -m tuner.limits", description=__doc__)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--precisions", default="fp32,bf16,fp8,int8_sq", help="by commas")
    arguments = parser.parse_args()
    try:
        for precision in arguments.precisions.split(","):
            print(precision, device_limits(arguments.device, precision).model_dump_json())
    except TunerError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
