"""Profiles for the rules on GPU, host, memory and errors."""

from advisor_profiles import Case, evidence, failed, hardware, result, steps, telemetry

from profiles.records import MemorySplit, TrialState

GIB = 2**30
OOM = (
    "serving 8 at once: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 139.72 GiB of which 1.50 GiB is free."
)
ASSERT = "the worker died: RuntimeError: CUDA error: device-side assert triggered"


def measured(gpu=None, host=None, **config):
    return evidence(
        result(config=config),
        steps=steps(),
        telemetry=telemetry(gpu, host),
        hardware=hardware(),
    )


def memory(peak_gib: float, kv_gib: float):
    split = MemorySplit(
        weights_bytes=40 * GIB,
        drafter_bytes=GIB,
        kv_bytes=int(kv_gib * GIB),
        rest_bytes=0,
        peak_bytes=int(peak_gib * GIB),
    )
    return evidence(result(memory=split, config={"batch_size": 8}), hardware=hardware())


CASES = {
    "busy_sms": Case(
        fires=measured({"sm_active_pct": 91.5}),
        cites=[
            "sm_active_pct = 91.5 % on GPU-1, mean of 30 samples while the trial served "
            "(over 85 %)",
            "tree_nodes_mean = 11.5 nodes per request and step, up to 1 requests in a step",
        ],
        silent=measured({"gpu_busy_pct": 100.0, "sm_active_pct": None}),
    ),
    "free_nodes": Case(
        fires=measured({"dram_active_pct": 72.0, "tensor_active_pct": 11.0}),
        cites=[
            "dram_active_pct = 72.0 % and tensor_active_pct = 11.0 % on GPU-1, means of 30 samples "
            "while the trial served",
            "tree_nodes_mean = 11.5 nodes per request and step",
        ],
        silent=measured({"dram_active_pct": 72.0, "tensor_active_pct": 31.0}),
    ),
    "throttling": Case(
        fires=measured({"throttle_reasons": [0x44] * 6 + [0x4] * 9 + [0x1] * 15}),
        cites=[
            "throttle_reasons 0x40 (hardware thermal slowdown) in 20.0% of 30 samples of GPU-1 "
            "while the trial served",
            "throttle_reasons 0x4 (power cap) in 50.0% of 30 samples of GPU-1 while the trial "
            "served",
        ],
        silent=measured({"throttle_reasons": [0x40] + [0x1 | 0x2 | 0x10 | 0x100] * 29}),
    ),
    "foreign_load": Case(
        fires=measured(host={"host_cpu_pct": 50.0, "process_cpu_pct": 120.0}),
        cites=[
            "host_cpu_pct = 50.0 % of 8 cores = 4.00 cores, process_cpu_pct = 120.0 % of one core "
            "= 1.20 cores, means of 30 samples"
        ],
        silent=measured(host={"host_cpu_pct": 50.0, "process_cpu_pct": 210.0}),
    ),
    "foreign_gpu_process": Case(
        fires=measured({"foreign_processes": [0] * 20 + [2] + [1] * 9}),
        cites=[
            "foreign_processes = 2 at most on GPU-1, and over 0 in 10 of 30 samples while the "
            "trial served"
        ],
        silent=measured({"foreign_processes": 0, "gpu_processes": 2}),
    ),
    "memory_pressure": Case(
        fires=memory(peak_gib=95, kv_gib=50),
        cites=[
            "peak_bytes = 95.00 GiB, 95.0% of the GPU's 100.00 GiB",
            "kv_bytes = 50.00 GiB, 52.6% of peak_bytes 95.00 GiB, at batch_size 8 and "
            "max_new_tokens 64",
        ],
        silent=memory(peak_gib=89, kv_gib=44),
    ),
    "out_of_memory": Case(
        fires=evidence(
            failed(OOM, state=TrialState.INFEASIBLE, config={"batch_size": 8}),
            log="torch.OutOfMemoryError: CUDA out of memory.\n",
        ),
        cites=[OOM, "batch_size 8, max_new_tokens 64, beam_width 4, draft_len 4"],
        silent=evidence(log="[W] CUDA out of memory while tuning, a smaller workspace was taken"),
    ),
    "known_errors": Case(
        fires=evidence(failed(ASSERT), log="indexing: index out of bounds\n"),
        cites=[ASSERT],
        silent=evidence(failed("the worker died: it left no message"), log="loading\n"),
    ),
}
