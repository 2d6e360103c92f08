"""Error texts as they really look, each explained by its own pattern."""

import pytest
from advisor_profiles import evidence, failed

from profiles.advisor import RULES
from profiles.advisor.error_patterns import PATTERNS
from profiles.advisor.errors_seen import known_lines

MESSAGES = {
    "kv_cache_does_not_fit": "batch_size = 8: its KV cache of 1,025 blocks needs 4,100 MiB, 2,048 "
    "MiB are free; lower batch_size or max_new_tokens",
    "config_does_not_fit": "batch_size = 512 needs 88,120 MiB (weights 15,317 MiB, drafter "
    "301 MiB, KV cache 71,902 MiB, buffers and activations 600 MiB), 80,000 MiB are free",
    "cuda_out_of_memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 0 has a total capacity of 139.72 GiB of which 1.50 GiB is free.",
    "tensorrt_out_of_memory": "[W] [TRT] Requested amount of GPU memory (17920000000 bytes) could "
    "not be allocated. There may not be enough free memory for allocation to succeed.",
    "host_out_of_memory": "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. "
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes.",
    "device_side_assert": "RuntimeError: CUDA error: device-side assert triggered",
    "illegal_memory_access": "CUDA error: an illegal memory access was encountered",
    "no_kernel_image": "CUDA error: no kernel image is available for execution on the device",
    "driver_library_mismatch": "Failed to initialize NVML: Driver/library version mismatch",
    "driver_too_old": "RuntimeError: The NVIDIA driver on your system is too old (found version "
    "11040). Please update your GPU driver",
    "libcuda_not_found": "ImportError: libcuda.so.1: cannot open shared object file: No such file "
    "or directory",
    "cublas_alloc_failed": "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
    "`cublasCreate(handle)`",
    "gpu_lost": "pynvml.NVMLError_GpuIsLost: GPU is lost",
    "nccl_timeout": "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, "
    "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600133 milliseconds before timing out.",
    "peer_access": "transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer "
    "access is not supported between these two devices",
    "nccl_system_error": "NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for "
    "details), NCCL version 2.21.5",
    "engine_version": "[TRT] [E] 1: Error Code 1: Serialization (Serialization assertion "
    "stdVersionRead == serializationVersion failed.Version tag does not match. Note: Current "
    "Version: 236, Serialized Engine Version: 237)",
    "engine_device": "The engine plan file is generated on an incompatible device, expecting "
    "compute 9.0 got compute 8.0, please rebuild.",
    "draft_tokens_limit": "[TensorRT-LLM][ERROR] Assertion failed: Number of draft tokens (56) is "
    "larger than maximum number of draft tokens (0)",
    "max_num_tokens": "[TensorRT-LLM][ERROR] Assertion failed: The engine is built with "
    "remove_input_padding=True and max_num_tokens=128, while trying to benchmark on 8192 tokens",
    "max_sequence_length": "Assertion failed: Input length (6973) + max new tokens (4095) + draft "
    "tokens (0) must be less than max sequence length (8192).",
    "undefined_symbol": "ImportError: libth_common.so: undefined symbol: "
    "_ZN3c105ErrorC2ENS_14SourceLocationESs",
}


def test_every_pattern_has_a_message():
    assert list(MESSAGES) == [known.name for known in PATTERNS]


@pytest.mark.parametrize("known", PATTERNS, ids=lambda known: known.name)
def test_message_is_explained_with_its_fix(known):
    message = MESSAGES[known.name]
    rule = "out_of_memory" if known.family == "memory" else "known_errors"
    (finding,) = RULES[rule](evidence(failed("the engine broke"), log=f"loading\n{message}\n"))
    assert finding.severity == "problem"
    assert finding.evidence[0] == message
    assert known.meaning in finding.title
    other = {"out_of_memory", "known_errors"} - {rule}
    assert RULES[other.pop()](evidence(failed(message))) == []


def test_each_kind_of_error_is_told_once_in_the_order_seen():
    log = "\n".join([MESSAGES["nccl_timeout"], MESSAGES["device_side_assert"]] * 3)
    found = RULES["known_errors"](evidence(failed(MESSAGES["device_side_assert"]), log=log))
    assert [finding.evidence for finding in found] == [
        [MESSAGES["device_side_assert"]],
        [MESSAGES["nccl_timeout"]],
    ]


def test_long_line_is_cut():
    ((_, line),) = known_lines(evidence(failed("undefined symbol " + "x" * 1000)))
    assert len(line) == 240 and line.endswith("…")


def test_log_of_a_trial_that_did_not_fail_is_not_read():
    assert known_lines(evidence(log="\n".join(MESSAGES.values()))) == []
