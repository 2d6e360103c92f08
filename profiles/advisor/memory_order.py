"""The order in which to make a config smaller when memory is short."""

from __future__ import annotations

from profiles.advisor.finding import Knob
from profiles.records import TrialResult

MEMORY_ORDER = (
    "Try in this order: a smaller batch_size or max_new_tokens; paged KV, so that blocks are held "
    "only for tokens that exist; a smaller precision (FP16, FP8, INT8, INT4); last, sharding over "
    "more GPUs."
)
_LADDER = ("fp16", "fp8", "int8_sq", "int4_awq")
_RUNG = {"fp32": 0, "fp16": 1, "bf16": 1, "fp8": 2, "int8_sq": 3, "int4_awq": 4}


def smaller(result: TrialResult) -> dict[Knob, list[int | float | str]]:
    """Return smaller values of each knob that has any, first remedy first.

    A precision that the trial never came to name gives no ladder: the next rung is unknown.
    """
    batch, new_tokens = result.config.batch_size, result.workload.max_new_tokens
    precision = result.precision or result.config.quantization
    options: dict[Knob, list[int | float | str]] = {
        "batch_size": [n for n in (batch // 2, batch // 4) if n >= 1],
        "max_new_tokens": [new_tokens // 2] if new_tokens >= 4 else [],
        "quantization": list(_LADDER[_RUNG[precision] :]) if precision in _RUNG else [],
    }
    return {knob: values for knob, values in options.items() if values}
