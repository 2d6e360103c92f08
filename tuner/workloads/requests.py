"""From a workload to the token ids that an engine serves."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import cycle, islice

from profiles.records import WorkloadSpec
from tuner.engines.base import Request
from tuner.errors import BadInput
from tuner.workloads.builtin_prompts import BUILTIN_CATEGORIES, read_builtin
from tuner.workloads.dropped import name_some
from tuner.workloads.tokenizer import Tokenizer
from tuner.workloads.workload import ShapeRequest, Workload

SHAPE_ONLY_CATEGORY = "shape-only"


@dataclass(frozen=True, slots=True)
class RequestBatch:
    """What is served: `dropped` tells what is not, and `rendered_first` shows the first prompt."""

    requests: tuple[Request, ...]
    dropped: tuple[str, ...]
    rendered_first: str


def build_requests(
    workload: Workload, tokenizer: Tokenizer, spec: WorkloadSpec, max_prompt_tokens: int
) -> RequestBatch:
    """Render and tokenize the first `spec.requests` prompts of at most `max_prompt_tokens`.

    Too few prompts are repeated in order under ids of their own, and `dropped` says so. A trace
    without text gives random tokens of the traced lengths, the same for the same `spec.seed`.

    Raises:
        BadInput: no prompt fits, or `max_prompt_tokens` leaves no room for any.
    """
    if max_prompt_tokens < 1:
        raise BadInput(
            "max_prompt_tokens", max_prompt_tokens, "leaves no room for a prompt; raise max_seq_len"
        )
    build = _from_shapes if workload.shapes else _from_prompts
    return build(workload, tokenizer, spec, max_prompt_tokens)


def _from_prompts(
    workload: Workload, tokenizer: Tokenizer, spec: WorkloadSpec, max_prompt_tokens: int
) -> RequestBatch:
    distinct: list[Request] = []
    left_out: list[str] = []
    rendered_first = ""
    for prompt in workload.prompts:
        if len(distinct) == spec.requests:
            break
        try:
            text = tokenizer.render(prompt.messages)
        except BadInput as error:
            left_out.append(f"{prompt.id}: {error.remedy}")
            continue
        ids = tuple(tokenizer.encode(text))
        if not 1 <= len(ids) <= max_prompt_tokens:
            left_out.append(f"{prompt.id}: {len(ids)} tokens, allowed are {max_prompt_tokens}")
            continue
        rendered_first = rendered_first or text
        distinct.append(
            Request(
                id=prompt.id,
                prompt_token_ids=ids,
                max_new_tokens=spec.max_new_tokens,
                temperature=spec.temperature,
                stop_token_ids=tokenizer.stop_token_ids,
                category=prompt.category,
            )
        )
    return _fill_up(workload, distinct, left_out, (), spec.requests, rendered_first)
