"""From the fields of the Start form to a checked sweep spec."""

from __future__ import annotations

from dataclasses import dataclass, field

from dashboard.formats import MIB
from profiles.records import DrafterPrecision, KVCacheDtype, Precision
from tuner.sweep.spec import SweepSpec, parse_spec


@dataclass(frozen=True)
class SweepRequest:
    """What the form holds. Limits in the form's units; None is no limit."""

    engine: str
    model: str
    workload: str
    beam_width: list[int]
    draft_len: list[int]
    batch_size: list[int]
    quantization: list[Precision | None]
    requests: int
    max_new_tokens: int
    objective: str
    trials: int
    sampler: str
    seed: int
    kv_cache_dtype: list[KVCacheDtype] = field(default_factory=lambda: ["auto"])
    drafter: list[str | None] = field(default_factory=lambda: [None])
    draft_vocab_size: list[int | None] = field(default_factory=lambda: [None])
    drafter_quantization: list[DrafterPrecision | None] = field(default_factory=lambda: [None])
    draft_len_min: list[int | None] = field(default_factory=lambda: [None])
    speculate_up_to: list[int | None] = field(default_factory=lambda: [None])
    temperature: float = 0.0
    min_tokens_per_s: float | None = None
    max_tpot_ms_p95: float | None = None
    max_ttft_ms_p95: float | None = None
    max_memory_mib: float | None = None

    def spec(self) -> SweepSpec:
        """Check the fields. Raises BadInput naming the first wrong one."""
        return parse_spec(
            {
                "engine": self.engine,
                "model": self.model.strip(),
                "space": {
                    "beam_width": self.beam_width,
                    "draft_len": self.draft_len,
                    "draft_len_min": self.draft_len_min,
                    "speculate_up_to": self.speculate_up_to,
                    "batch_size": self.batch_size,
                    "quantization": self.quantization,
                    "kv_cache_dtype": self.kv_cache_dtype,
                    "drafter": self.drafter,
                    "draft_vocab_size": self.draft_vocab_size,
                    "drafter_quantization": self.drafter_quantization,
                },
                "workload": {
                    "workload": self.workload,
                    "requests": self.requests,
                    "max_new_tokens": self.max_new_tokens,
                    "temperature": self.temperature,
                    "seed": self.seed,
                },
                "objective": self.objective,
                "limits": self._limits(),
                "trials": self.trials,
                "sampler": self.sampler,
                "seed": self.seed,
            },
            "the Start form",
        )

    def _limits(self) -> dict[str, float]:
        memory = self.max_memory_mib
        limits = {
            "output_tokens_per_s": self.min_tokens_per_s,
            "tpot_ms_p95": self.max_tpot_ms_p95,
            "ttft_ms_p95": self.max_ttft_ms_p95,
            "memory_peak_bytes": None if memory is None else memory * MIB,
        }
        return {name: limit for name, limit in limits.items() if limit is not None}
