"""Kernels in CUDA C++, compiled for the device when they are first used.

NVRTC compiles and the driver launches, both through NVIDIA's own bindings, which torch for CUDA
brings along.
"""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tuner.engines.redrafter.kernels.stages import room
from tuner.errors import EngineFailure

_FOLDER = Path(__file__).parent


def can_compile() -> bool:
    """Whether NVIDIA's bindings are installed."""
    return importlib.util.find_spec("cuda") is not None and (
        importlib.util.find_spec("cuda.bindings") is not None
    )


def compile_for(architecture: str, name: str, **constants: int) -> bytes:
    """Compile `name`.cu, in which `constants` are defined, to machine code.

    Args:
        architecture: of the device, like sm_90.
        name: of the file and of its kernel.
        constants: names, in capitals, and values.

    Raises:
        EngineFailure: NVRTC is missing or cannot compile it; with its own words.
    """
    from cuda.bindings import nvrtc

    lines = [f"#define {key} {value}" for key, value in constants.items()]
    source = "\n".join([*lines, "#line 1", (_FOLDER / f"{name}.cu").read_text()])
    try:
        program = _done(nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], []))
    except RuntimeError as error:  # what the bindings raise where the library is missing
        raise EngineFailure(f"{name}.cu cannot be compiled: {error}") from error
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status):
        log = bytes(_done(nvrtc.nvrtcGetProgramLogSize(program)))
        _done(nvrtc.nvrtcGetProgramLog(program, log))
        reason = log.decode().strip("\0 \n") or str(status)
        raise EngineFailure(f"{name}.cu cannot be compiled for {architecture}: {reason}")
    code = bytes(_done(nvrtc.nvrtcGetCUBINSize(program)))
    _done(nvrtc.nvrtcGetCUBIN(program, code))
    return code


class Kernel:
    """A compiled kernel on one device."""

    def __init__(self, device: torch.device, name: str, **constants: int) -> None:
        from cuda.bindings import driver

        from tuner.engines.redrafter.kernels.overlap import overlapped

        major, minor = torch.cuda.get_device_capability(device)
        code = compile_for(f"sm_{major}{minor}", name, **constants)
        self._early = overlapped(device)["OVERLAP"]
        with torch.cuda.device(device):
            self._module = _done(driver.cuModuleLoadData(code))
            self._function = _done(driver.cuModuleGetFunction(self._module, name.encode()))
        kind = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _done(driver.cuFuncSetAttribute(self._function, kind, room(device)))

    def __call__(
        self, blocks: int, threads: int, shared: int, *arguments: Tensor | int | None
    ) -> None:
        """Launch it on torch's current stream, while the kernel before it ends if it can be.

        Args:
            blocks: how many.
            threads: of a block.
            shared: bytes of shared memory of a block.
            arguments: tensors, null pointers and C's ints, in the order of the kernel's.
        """
        from cuda.bindings import driver

        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = shared
        config.hStream = torch.cuda.current_stream().cuda_stream
        early = driver.CUlaunchAttribute()
        early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        config.attrs = [early] if self._early else []
        config.numAttrs = len(config.attrs)
        values = [_as_c(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        _done(driver.cuLaunchKernelEx(config, self._function, ctypes.addressof(pointers), 0))


def _as_c(argument: Tensor | int | None) -> Any:
    if isinstance(argument, int):
        return ctypes.c_int(argument)
    return ctypes.c_void_p(0 if argument is None else argument.data_ptr())


def _done(result: tuple[Any, ...]) -> Any:
    """Return what a call of the bindings gave. Raises EngineFailure, naming its error."""
    status, *values = result
    if int(status):
        raise EngineFailure(f"CUDA answers {status.name}")
    return values[0] if values else None
