"""Known error texts of CUDA, NCCL, TensorRT and TensorRT-LLM: what they mean and the fix.

The first pattern of a line wins, so a narrow one stands before a wide one. Wordings are those of
the named projects' sources and issue threads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Family = Literal["memory", "CUDA", "NCCL", "TensorRT", "TensorRT-LLM", "host"]


@dataclass(frozen=True, slots=True)
class ErrorPattern:
    """One kind of failure. `family` "memory" is advised on by `rules/out_of_memory.py`."""

    name: str
    family: Family
    pattern: re.Pattern[str]
    meaning: str
    fix: str


def _known(name: str, family: Family, pattern: str, meaning: str, fix: str) -> ErrorPattern:
    return ErrorPattern(name, family, re.compile(pattern, re.IGNORECASE), meaning, fix)


PATTERNS: tuple[ErrorPattern, ...] = (
    _known(
        "kv_cache_does_not_fit",
        "memory",
        r"KV cache of [\d,]+ blocks needs|maxTokensInPagedKvCache must be large enough",
        "the KV cache of this batch and length does not fit beside the weights",
        "lower batch_size or max_new_tokens",
    ),
    _known(
        "config_does_not_fit",
        "memory",
        r"batch_size = \d+ needs [\d,]+ MiB \(weights",
        "the config was predicted to need more memory than is free, and was not loaded",
        "lower batch_size or max_new_tokens, take kv_cache_dtype fp8 or a smaller precision; end "
        "other processes that hold memory on this GPU",
    ),
    _known(
        "cuda_out_of_memory",
        "memory",
        r"CUDA out of memory|CUDA error: out of memory|torch\.OutOfMemoryError"
        r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
        "the GPU had no room for an allocation",
        "lower batch_size or max_new_tokens; end other processes that hold memory on this GPU",
    ),
    _known(
        "tensorrt_out_of_memory",
        "memory",
        r"Requested amount of GPU memory \(\d+ bytes\) could not be allocated"
        r"|Error Code \d+: OutOfMemory|Cuda Runtime \(out of memory\)",
        "TensorRT could not allocate activations or a workspace",
        "rebuild with a smaller max_batch_size and max_num_tokens, or lower "
        "kv_cache_free_gpu_mem_fraction",
    ),
    _known(
        "host_out_of_memory",
        "memory",
        r"DefaultCPUAllocator: (can't allocate|not enough) memory|std::bad_alloc"
        r"|Cannot allocate memory|\bMemoryError\b",
        "the host had no memory left",
        "load a smaller model, lower batch_size, or end other processes",
    ),
    _known(
        "device_side_assert",
        "CUDA",
        r"device-side assert",
        "a kernel met an index out of range: mostly a token id beyond the vocabulary, or a "
        "position beyond the model's limit",
        "check that tokenizer, model and drafter have the same vocabulary; run with "
        "CUDA_LAUNCH_BLOCKING=1 to see the kernel; the process must be started anew",
    ),
    _known(
        "illegal_memory_access",
        "CUDA",
        r"illegal memory access|CUDA_ERROR_ILLEGAL_ADDRESS",
        "a kernel read or wrote outside its buffers; the line that reports it is often later",
        "run with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer to find the kernel; try without "
        "CUDA graphs; the process must be started anew",
    ),
    _known(
        "no_kernel_image",
        "CUDA",
        r"no kernel image is available",
        "torch or a kernel package was not built for this GPU's compute capability",
        "install a build that lists this GPU's architecture (`tuner doctor` names both)",
    ),
    _known(
        "driver_library_mismatch",
        "CUDA",
        r"driver/library version mismatch",
        "the driver was updated while its kernel module of the old version is still loaded",
        "reboot, or reload the NVIDIA kernel modules with no GPU process running",
    ),
    _known(
        "driver_too_old",
        "CUDA",
        r"driver version is insufficient for CUDA runtime|NVIDIA driver on your system is too old"
        r"|cudaErrorInsufficientDriver",
        "the installed driver is older than the CUDA version that torch was built with",
        "update the driver, or install torch built for an older CUDA version",
    ),
    _known(
        "libcuda_not_found",
        "CUDA",
        r"libcuda\.so(\.1)?: cannot open shared object file",
        "no NVIDIA driver is visible to this process",
        "install the driver; in a container start it with GPU access (--gpus all); on a host "
        "without a GPU set device to cpu",
    ),
    _known(
        "cublas_alloc_failed",
        "CUDA",
        r"CUBLAS_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)",
        "cuBLAS could not set itself up: mostly no GPU memory is left for its workspace, "
        "sometimes an earlier kernel had failed",
        "lower batch_size; if memory was free, look for an earlier CUDA error in the log",
    ),
    _known(
        "gpu_lost",
        "CUDA",
        r"GPU is lost|fallen off the bus|Unable to determine the device handle",
        "the GPU no longer answers the driver",
        "look for Xid lines in the kernel log, reset or reboot, then resume the sweep",
    ),
    _known(
        "nccl_timeout",
        "NCCL",
        r"Watchdog caught collective operation timeout|NCCL[^\n]*timed? ?out",
        "a GPU waited in a collective that another never joined",
        "look for the first error of another rank; run with NCCL_DEBUG=INFO; check that all ranks "
        "use the same config",
    ),
    _known(
        "peer_access",
        "NCCL",
        r"peer access is not supported|cudaErrorPeerAccessUnsupported",
        "these two GPUs cannot read each other's memory: no NVLink, or PCIe peer access is blocked",
        "set NCCL_P2P_DISABLE=1 (slower), or use GPUs that nvidia-smi topo -m shows as connected",
    ),
    _known(
        "nccl_system_error",
        "NCCL",
        r"ncclSystemError|NCCL[^\n]*unhandled system error",
        "NCCL failed in a call to the system: mostly too little shared memory, or a network "
        "interface it cannot use",
        "enlarge /dev/shm (--shm-size in a container); run with NCCL_DEBUG=INFO; set "
        "NCCL_SOCKET_IFNAME",
    ),
    _known(
        "engine_version",
        "TensorRT",
        r"Version tag does not match|stdVersionRead == |engine plan file is not compatible with "
        r"this version",
        "the engine was built by another TensorRT version than the one that loads it",
        "rebuild the engine with the installed version; check that only one TensorRT is installed",
    ),
    _known(
        "engine_device",
        "TensorRT",
        r"generated on an incompatible device",
        "the engine was built for another GPU model",
        "rebuild the engine on the GPU that serves it",
    ),
    _known(
        "draft_tokens_limit",
        "TensorRT-LLM",
        r"draft tokens \(\d+\) is larger than maximum",
        "more tokens are drafted than the engine was built for; a maximum of 0 means that it was "
        "built without speculative decoding",
        "rebuild: the ReDrafter checkpoint fixes beams and draft length, and max_draft_len is "
        "beam_width * draft_len",
    ),
    _known(
        "max_num_tokens",
        "TensorRT-LLM",
        r"max_num_tokens=\d+, while|exceed[^\n]*max_num_tokens|larger than max_num_tokens",
        "a step would hold more tokens than the engine was built for",
        "rebuild with --max_num_tokens of at least max_batch_size * (beam_width * draft_len + 1) "
        "and of the longest prompt, or enable chunked context",
    ),
    _known(
        "max_sequence_length",
        "TensorRT-LLM",
        r"must be less than max sequence length|max_context_len <= mMaxContextLength",
        "prompt, new tokens and draft together are longer than the engine was built for",
        "lower max_new_tokens, shorten prompts, or rebuild with a larger --max_seq_len",
    ),
    _known(
        "undefined_symbol",
        "host",
        r"undefined symbol",
        "a compiled package was built against another version of torch or TensorRT",
        "install the package's build for the installed torch, in an environment of its own",
    ),
)
