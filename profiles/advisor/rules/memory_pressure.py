"""A trial fits, but little memory is left or the KV cache holds most of it."""

from __future__ import annotations

from profiles.advisor import cite
from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding
from profiles.advisor.memory_order import MEMORY_ORDER, smaller
from profiles.records import MemorySplit, TrialResult

FULL_SHARE = 0.90  # our judgement; engines that take a fixed share of free memory are left out
LARGE_KV_SHARE = 0.50  # our judgement: KV is then the first thing to shrink
# NOTE: this engine fills its KV pool up to a share of free memory whatever the config needs.
POOLING_ENGINES = frozenset({"tensorrt_llm"})


def memory_pressure(evidence: Evidence) -> list[Finding]:
    """Find a peak close to the GPU's memory, or a KV cache that is most of what is held."""
    memory, result = evidence.result.memory, evidence.result
    if memory is None or result.config.engine in POOLING_ENGINES:
        return []
    held = memory.peak_bytes
    if held is None:
        held = memory.weights_bytes + memory.drafter_bytes + memory.kv_bytes
    kv_share = memory.kv_bytes / held if held else 0.0
    full = _fullness(evidence, memory)
    if full is None and kv_share <= LARGE_KV_SHARE:
        return []
    return [
        Finding(
            rule="memory_pressure",
            severity="warning" if full else "info",
            title=(
                "Hardly any GPU memory is left for a larger batch or longer output."
                if full
                else "The KV cache is the largest part of the memory held."
            ),
            evidence=[*([full] if full else []), _kv(memory, held, kv_share, result)],
            causes=["KV grows with batch_size and with prompt and output length"]
            if kv_share > LARGE_KV_SHARE
            else ["weights and buffers hold more than the KV cache does"],
            next_experiment=MEMORY_ORDER,
            knobs=smaller(result),
        )
    ]


def _fullness(evidence: Evidence, memory: MemorySplit) -> str | None:
    """Cite a nearly full GPU. Which GPU was used must be beyond doubt."""
    gpus = evidence.hardware.gpus if evidence.hardware else []
    totals = {gpu.memory_total_bytes for gpu in gpus}
    on_gpu = any(gpu.name == evidence.result.device for gpu in gpus) or (
        evidence.result.device or ""
    ).startswith("cuda")
    total = totals.pop() if len(totals) == 1 else None
    if not on_gpu or total is None or memory.peak_bytes is None:
        return None
    share = memory.peak_bytes / total
    if share < FULL_SHARE:
        return None
    return f"peak_bytes = {cite.gib(memory.peak_bytes)}, {share:.1%} of the GPU's {cite.gib(total)}"


def _kv(memory: MemorySplit, held: int, share: float, result: TrialResult) -> str:
    of = "peak_bytes" if memory.peak_bytes is not None else "weights, drafter and KV"
    return (
        f"kv_bytes = {cite.gib(memory.kv_bytes)}, {share:.1%} of {of} {cite.gib(held)}, at "
        f"batch_size {result.config.batch_size} and max_new_tokens {result.workload.max_new_tokens}"
    )
