"""What a trial runs, and on what."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from profiles.records.base import Record

Precision = Literal["fp32", "fp16", "bf16", "fp8", "int8_sq", "int4_awq"]
DrafterPrecision = Literal["fp8"]  # what needs no calibration, and is fast for few rows
KVCacheDtype = Literal["auto", "fp8"]
LONGEST_DRAFT = 16


class TrialConfig(Record):
    """What one trial runs. `draft_len = 0` is the autoregressive baseline.

    `draft_len` counts drafted tokens only, not the true token that the base model already chose
    (TensorRT-LLM's `draft_len_per_beam`; Apple's `beam_length` is `draft_len + 1`). With
    `draft_len_min` every step drafts as many as pays by what the running requests accepted lately,
    between the two; while more than `speculate_up_to` requests run, none are drafted.
    """

    engine: str = "redrafter"
    model: str = "smollm2-135m"
    drafter: str | None = None
    draft_vocab_size: Annotated[int, Field(ge=1)] | None = None  # None: the drafter's own
    drafter_quantization: DrafterPrecision | None = None  # None: not quantized
    device: str = "auto"
    quantization: Precision | None = None  # None: the device's default precision
    kv_cache_dtype: KVCacheDtype = "auto"  # auto: as activations are
    beam_width: Annotated[int, Field(ge=1, le=64)] = 4
    draft_len: Annotated[int, Field(ge=0, le=LONGEST_DRAFT)] = 4
    draft_len_min: Annotated[int, Field(ge=1)] | None = None  # None: every step drafts draft_len
    speculate_up_to: Annotated[int, Field(ge=1)] | None = None  # None: however many requests run
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 1

    @field_validator("draft_len_min")
    @classmethod
    def _below_draft_len(cls, value: int | None, info: ValidationInfo) -> int | None:
        longest = info.data.get("draft_len")  # missing where it is refused itself
        if value is not None and longest is not None and value > longest:
            raise ValueError(f"is more than draft_len, {longest}: lower it or leave it out")
        return value

    @field_validator("speculate_up_to")
    @classmethod
    def _speculates(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("draft_len") == 0:
            raise ValueError("nothing is drafted with draft_len 0: raise that or leave this out")
        return value

    @property
    def adaptive(self) -> bool:
        """Whether steps may draft fewer than `draft_len` tokens."""
        return self.draft_len_min is not None or self.speculate_up_to is not None

    def baseline(self) -> TrialConfig:
        """Return the autoregressive twin: same model, precision and batch, no speculation."""
        nothing = dict.fromkeys(
            (
                "drafter",
                "draft_vocab_size",
                "drafter_quantization",
                "draft_len_min",
                "speculate_up_to",
            )
        )
        return self.model_copy(update={**nothing, "beam_width": 1, "draft_len": 0})

    def describe(self) -> str:
        """Name the config in a few words."""
        rest = f"batch {self.batch_size}" + (f", {self.quantization}" if self.quantization else "")
        if self.kv_cache_dtype != "auto":
            rest += f", {self.kv_cache_dtype} KV cache"
        if self.draft_len == 0:
            return f"no speculation, {rest}"
        if self.drafter is not None:
            rest += f", {_last_part(self.drafter)}"
        if self.draft_vocab_size is not None:
            rest += f", draft vocabulary {self.draft_vocab_size}"
        if self.drafter_quantization is not None:
            rest += f", {self.drafter_quantization} drafter"
        if self.speculate_up_to is not None:
            rest += f", no drafts for more than {self.speculate_up_to} at once"
        least = "" if self.draft_len_min is None else f"{self.draft_len_min} to "
        return f"beam width {self.beam_width}, draft length {least}{self.draft_len}, {rest}"


def _last_part(drafter: str) -> str:
    """Name a drafter without the folders that lead to it."""
    kind, colon, path = drafter.rpartition(":")
    return f"{kind}{colon}{PurePath(path).name}"


class WorkloadSpec(Record):
    """Which prompts are served and how."""

    workload: str = "builtin"
    requests: Annotated[int, Field(ge=1)] = 16
    max_new_tokens: Annotated[int, Field(ge=2)] = 64  # 1 would be all prompt, no generation
    temperature: Annotated[float, Field(ge=0.0, le=5.0)] = 0.0
    seed: Annotated[int, Field(ge=0)] = 0
