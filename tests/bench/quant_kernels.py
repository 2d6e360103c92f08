"""Time of every product by number of rows: `python -m tests.bench.quant_kernels [--help]`.

Which kernel should multiply which precision at how many rows is read off this table. On CUDA every
call is captured in a graph over copies of the weights that do not fit the L2 cache together, and
the graph is replayed; medians in microseconds a call. Shapes are (outputs x inputs) of Llama-3-8B.
Relative error is against the product of the unquantized bf16 weights.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from tuner.engines.redrafter.quant import humming
from tuner.engines.redrafter.quant.kernels import fast_linear
from tuner.engines.redrafter.quant.quantize import KINDS

SHAPES = "6144x4096,4096x4096,28672x4096,4096x14336,128256x4096"
WITH_OWN_KERNELS = ("fp8", "int4_awq")
BEYOND_L2_BYTES = 256 << 20
REPLAYS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--rows", default="1,4,16,32,64,128,512")
    options = parser.parse_args()
    device = torch.device(options.device)
    rows = [int(count) for count in options.rows.split(",")]
    print(f"| shape | product | error | {' | '.join(f'{count} rows' for count in rows)} |")
    print("|---" * (3 + len(rows)) + "|")
    for shape in options.shapes.split(","):
        outputs, inputs = map(int, shape.split("x"))
        weight = torch.randn(outputs, inputs, device=device).bfloat16() * 0.02
        for name, module in _products(weight):
            times = [f"{_microseconds(module, inputs, count, device):.1f}" for count in rows]
            error = f"{_error(module, weight):.4f}"
            print(f"| {shape} | {name} | {error} | {' | '.join(times)} |", flush=True)


def _products(weight: Tensor) -> Iterator[tuple[str, nn.Module]]:
    plain = nn.Linear(*weight.shape[::-1], bias=False, device="meta")
    plain.weight = nn.Parameter(weight, requires_grad=False)
    yield "bf16, torch linear", plain
    kernels = ["torch"]
    if weight.is_cuda and humming.installed():
        kernels = ["humming", "torch"]
    for precision, kind in KINDS.items():
        own = ["auto"] if precision in WITH_OWN_KERNELS and weight.is_cuda else []
        for kernel in own + kernels:
            module = fast_linear(kind.from_float(weight), kernel)
            yield f"{precision}, {getattr(module, 'kernel', '')}", module


@torch.inference_mode()
def _error(module: nn.Module, weight: Tensor) -> float:
    x = torch.randn(64, weight.shape[1], device=weight.device).bfloat16()
    exact = x.float() @ weight.float().t()
    return float((module(x).float() - exact).norm() / exact.norm())


@torch.inference_mode()
def _microseconds(module: nn.Module, inputs: int, rows: int, device: torch.device) -> float:
    x = torch.randn(rows, inputs, device=device).bfloat16()
    if device.type == "cpu":
        return statistics.median(_timed(lambda: module(x)) for _ in range(3)) * 1e6
    copies = _copies(module)
    for each in copies:
        each(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for each in copies:
            each(x)
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(copies))
    return statistics.median(times)


def _copies(module: nn.Module) -> list[nn.Module]:
    """Return `module` and as many copies of it as do not fit the L2 cache together."""
    tensors = [*module.parameters(), *module.buffers()]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return [module, *(copy.deepcopy(module) for _ in range(BEYOND_L2_BYTES // size))]


def _timed(call: Callable[[], Tensor]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
