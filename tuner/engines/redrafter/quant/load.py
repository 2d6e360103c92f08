"""A base model from its folder to its device in the precision asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profiles.records import WorkloadSpec
from tuner.engines.redrafter.checkpoint import load_llama
from tuner.engines.redrafter.linear import Compute, apply_compute
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.quant.quantize import CALIBRATED, quantize
from tuner.errors import BadInput
from tuner.models.resolve import cache_dir
from tuner.workloads import HFTokenizer, build_requests, load_workload

CALIBRATION_WORKLOAD = "builtin"
_PROMPTS = 32
_LONGEST = 512


def load_computed(
    model_dir: Path, compute: Compute, workload: str = CALIBRATION_WORKLOAD, kernel: str = "auto"
) -> Llama:
    """Read the base model in `model_dir` and bring it to `compute`.

    `workload` gives the prompts that it reads where the precision is calibrated; what it finds is
    kept in the cache folder for the next time.

    Raises:
        BadInput: a checkpoint that cannot be read, or not be brought to this precision.
    """
    model = load_llama(model_dir)
    if not compute.quantized:
        return apply_compute(model, compute)
    calibrated = compute.precision in CALIBRATED
    prompts = calibration_prompts(model_dir, workload) if calibrated else ()
    return quantize(model, compute, prompts, model_dir, cache_dir() / "calibration", kernel)


def calibration_prompts(model_dir: Path, workload: str) -> Sequence[tuple[int, ...]]:
    """Return the token ids of the first prompts of `workload`, rendered for the model."""
    source, tokenizer = load_workload(workload), HFTokenizer(model_dir)
    if not source.prompts:
        raise BadInput("calibration", workload, "has no text; give a workload with prompts")
    spec = WorkloadSpec(requests=min(_PROMPTS, len(source.prompts)))
    requests = build_requests(source, tokenizer, spec, _LONGEST).requests
    return [request.prompt_token_ids for request in requests]
