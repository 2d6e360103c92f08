"""The door to NVML: starting it, and its error codes in words.

NVML is handed around as an object with the functions of `pynvml` (nvidia-ml-py), normally that
module itself, so that tests bring their own.
"""

from __future__ import annotations

from typing import Any

from profiles.telemetry.counters import Unavailable

Nvml = Any
"""`pynvml`, or an object with its functions, its structures and its `NVMLError`."""

NOT_SUPPORTED = 3
_FOR_GOOD = {
    2: "NVML refuses the argument for this GPU",
    NOT_SUPPORTED: "not supported by this GPU or in its present mode (MIG, vGPU, unified memory)",
    4: "no permission: run as root, or ask the administrator to allow performance counters "
    "(NVreg_RestrictProfilingToAdminUsers=0)",
    6: "the driver does not find it",
    13: "this driver is too old to know the call",
    25: "the driver speaks another version of the call",
    26: "the driver no longer supports the call",
}
_FOR_NOW = {
    1: "NVML is not initialised",
    9: "the NVIDIA driver is not loaded: check `nvidia-smi`",
    10: "the driver did not answer in time",
    12: "no NVIDIA driver library (libnvidia-ml.so.1): this host has no NVIDIA driver, or the "
    "container was started without GPUs",
    15: "the GPU is lost: it fell off the bus or was reset",
    16: "the GPU needs a reset",
    17: "the operating system blocked the request",
    18: "the driver library and the kernel module differ in version: reboot, or reload the driver",
    21: "the driver has no data",
    27: "the driver is not ready",
    28: "no such GPU",
    999: "the driver reports an unknown error; in a container this often means that it lost its "
    "GPUs (systemctl daemon-reload): restart it",
}


def unavailable(error: Exception, mode: str | None = None) -> Unavailable:
    """Turn an `NVMLError`, known by its `value`, into a reason with the code in it.

    `mode` says, where it is known, why this GPU does not support what others do.
    """
    code = int(getattr(error, "value", 999))
    words = _FOR_GOOD.get(code) or _FOR_NOW.get(code) or str(error)
    if code == NOT_SUPPORTED and mode is not None:
        words = f"not supported: {mode}"
    return Unavailable(f"{words} (NVML error {code})", for_good=code in _FOR_GOOD)


def unknown_call(error: AttributeError) -> Unavailable:
    """A function or structure that the installed nvidia-ml-py is too old to have."""
    name = error.name or str(error)
    return Unavailable(
        f"the installed nvidia-ml-py does not know {name}: pip install -U nvidia-ml-py",
        for_good=True,
    )


def start_nvml(nvml: Nvml = None) -> Nvml:
    """Initialise NVML, `pynvml` unless another is given.

    Raises:
        Unavailable: no library, no driver, a mismatch of the two: the reason names the fix.
    """
    if nvml is None:
        try:
            import pynvml
        except ImportError as error:
            raise Unavailable("nvidia-ml-py is not installed: pip install nvidia-ml-py") from error
        nvml = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise unavailable(error) from error
    return nvml
