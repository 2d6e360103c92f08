"""What a sweep searches, on what, for what, and within which limits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator

from profiles.records import (
    DrafterPrecision,
    KVCacheDtype,
    Precision,
    Record,
    TrialConfig,
    TrialResult,
    WorkloadSpec,
)
from tuner.errors import BadInput
from tuner.models.drafters import is_retrieval

Objective = Literal[
    "output_tokens_per_s",
    "tpot_ms_p95",
    "ttft_ms_p95",
    "memory_peak_bytes",
    "energy_mj_per_token",
]
HIGHER_IS_BETTER: frozenset[str] = frozenset({"output_tokens_per_s"})

_Width = Annotated[int, Field(ge=1, le=64)]
_Length = Annotated[int, Field(ge=1, le=16)]
_Batch = Annotated[int, Field(ge=1, le=1024)]
_Drafter = Annotated[str, Field(min_length=1)]
_Vocabulary = Annotated[int, Field(ge=1)]

_BOUNDS = {"draft_len_min": "draft_len", "speculate_up_to": "batch_size"}  # and what they bind


class SearchSpace(Record):
    """The values of every knob. No speculation (draft_len 0) is always part of the space."""

    beam_width: Annotated[list[_Width], Field(min_length=1)] = [1, 2, 4, 8]
    draft_len: Annotated[list[_Length], Field(min_length=1)] = [2, 3, 4, 5]
    draft_len_min: Annotated[list[_Length | None], Field(min_length=1)] = [None]
    speculate_up_to: Annotated[list[_Batch | None], Field(min_length=1)] = [None]
    batch_size: Annotated[list[_Batch], Field(min_length=1)] = [1, 4]
    quantization: Annotated[list[Precision | None], Field(min_length=1)] = [None]
    kv_cache_dtype: Annotated[list[KVCacheDtype], Field(min_length=1)] = ["auto"]
    drafter: list[_Drafter | None] = []  # none: the spec's own; null: the one shipped for the model
    draft_vocab_size: Annotated[list[_Vocabulary | None], Field(min_length=1)] = [None]
    drafter_quantization: Annotated[list[DrafterPrecision | None], Field(min_length=1)] = [None]

    @field_validator("*")
    @classmethod
    def _each_once(cls, values: list[Any]) -> list[Any]:
        if len(set(values)) < len(values):
            raise ValueError("names a value twice")
        return values


class SweepSpec(Record):
    """A sweep. `trials` counts configs beside the baselines, which are always measured."""

    engine: str = "redrafter"
    model: str = "smollm2-135m"
    drafter: str | None = None
    device: str = "auto"
    space: SearchSpace = SearchSpace()
    workload: WorkloadSpec = WorkloadSpec(requests=12, max_new_tokens=48)
    objective: Objective = "output_tokens_per_s"
    limits: dict[Objective, Annotated[float, Field(gt=0)]] = {}
    trials: Annotated[int, Field(ge=1, le=10_000)] = 16
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    seed: Annotated[int, Field(ge=0)] = 0

    @property
    def knobs(self) -> dict[str, list[Any]]:
        """The values to try of every knob, by its name in the trial config."""
        return self.space.model_dump() | {"drafter": self.space.drafter or [self.drafter]}

    def config(self, **knobs: Any) -> TrialConfig:
        """Return the trial config of one point, without the knobs that mean nothing there."""
        fixed = {"engine": self.engine, "model": self.model, "device": self.device}
        knobs = {"drafter": self.drafter, **fixed, **_binding(knobs)}
        config = TrialConfig.model_validate(knobs)
        if is_retrieval(config.drafter):
            nothing = {"draft_vocab_size": None, "drafter_quantization": None}
            config = config.model_copy(update=nothing)
        return config.baseline() if config.draft_len == 0 else config

    def baselines(self) -> list[TrialConfig]:
        """Return the no-speculation config of every batch size, precision and KV cache."""
        knobs = ("quantization", "kv_cache_dtype", "batch_size")
        points = itertools.product(*(getattr(self.space, knob) for knob in knobs))
        return [self.config(draft_len=0, **dict(zip(knobs, p, strict=True))) for p in points]

    def points(self) -> Iterator[TrialConfig]:
        """Yield every speculating config of the space once."""
        knobs = self.knobs
        points = (dict(zip(knobs, p, strict=True)) for p in itertools.product(*knobs.values()))
        yield from dict.fromkeys(self.config(**point) for point in points)


def _binding(knobs: dict[str, Any]) -> dict[str, Any]:
    """Drop the bounds that bind nothing, so that configs which do the same are equal."""
    idle = [
        bound
        for bound, knob in _BOUNDS.items()
        if (value := knobs.get(bound)) is not None
        and (knobs["draft_len"] == 0 or value >= knobs[knob])
    ]
    return knobs | dict.fromkeys(idle)


def value_of(result: TrialResult, objective: Objective) -> float | None:
    """Return what `result` measured for `objective`, or None where it is missing."""
    metrics = result.metrics
    if objective == "memory_peak_bytes":
        return result.memory.peak_bytes if result.memory else None
    if objective == "energy_mj_per_token":
        return result.energy.energy_mj_per_token if result.energy else None
    if metrics is None:
        return None
    if objective == "tpot_ms_p95":
        return metrics.tpot_ms.p95 if metrics.tpot_ms else None
    return metrics.ttft_ms.p95 if objective == "ttft_ms_p95" else metrics.output_tokens_per_s


def excess(result: TrialResult, limits: dict[Objective, float]) -> dict[Objective, float]:
    """Return by how much each limit is broken: at most 0 where it is met.

    A limit is a maximum, except for output tokens/s, where it is a minimum. A value that was not
    measured cannot be shown to meet a limit and counts as broken by the whole limit.
    """
    broken: dict[Objective, float] = {}
    for objective, limit in limits.items():
        value = value_of(result, objective)
        if value is None:
            broken[objective] = limit
        else:
            broken[objective] = limit - value if objective in HIGHER_IS_BETTER else value - limit
    return broken


def violations(result: TrialResult, limits: dict[Objective, float]) -> list[str]:
    """Say in words why a measured result must not be called best.

    Speculation may not change greedy text. In half precision near-ties can fall either way, so
    only fp32 is held to equality here; elsewhere the text check is shown and judged by people.
    """
    words = []
    for objective, over in excess(result, limits).items():
        if over > 0:
            side = "at least" if objective in HIGHER_IS_BETTER else "at most"
            value = value_of(result, objective)
            found = "not measured" if value is None else f"{value:.4g}"
            words.append(f"{objective} is {found}, wanted {side} {limits[objective]:g}")
    if result.precision == "fp32" and result.text and not result.text.all_equal:
        words.append(f"text differs from the baseline in fp32: {result.text.first_difference}")
    return words


def read_yaml(path: Path, field: str) -> dict[str, Any]:
    """Read a YAML (or JSON) mapping. Raises BadInput."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(field, str(path), "does not exist") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(field, str(path), f"cannot be read as YAML ({reason})") from error
    if not isinstance(data, dict):
        raise BadInput(field, str(path), "must be a mapping of fields to values")
    return data


def parse_spec(data: dict[str, Any], source: str) -> SweepSpec:
    """Check a sweep spec. Raises BadInput naming the first wrong field."""
    try:
        return SweepSpec.model_validate(data)
    except ValidationError as error:
        raise bad_field(error, source) from error


def bad_field(error: ValidationError, source: str) -> BadInput:
    """Turn pydantic's first complaint into a BadInput."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return BadInput(where or source, first["input"], f"{first['msg']} (in {source})")
