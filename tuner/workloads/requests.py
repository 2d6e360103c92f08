"""From a workload to the token ids that an engine serves."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from itertools import cycle, islice

from profiles.records import WorkloadSpec
from tuner.engines.base import Request
from tuner.errors import BadInput
from tuner.workloads.builtin_prompts import BUILTIN_CATEGORIES, read_builtin
from tuner.workloads.dropped import name_some
from tuner.workloads.tokenizer import Tokenizer
from tuner.workloads.workload import Workload

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
            "max_prompt_tokens",
            max_prompt_tokens,
            "leaves no room for a prompt; lower max_new_tokens or take a model of longer context",
        )
    read = _fitting_shapes if workload.shapes else _fitting_prompts
    fitting = read(workload, tokenizer, spec, max_prompt_tokens)
    if not fitting.requests:
        left_out = "; ".join(name_some(fitting.left_out, "prompts"))
        raise BadInput(
            "workload",
            workload.name,
            f"choose a workload of shorter prompts, none of these can be served: {left_out}",
        )
    notes = name_some(fitting.left_out, "prompts") + fitting.notes
    if len(fitting.requests) < spec.requests:
        notes += (
            f"{len(fitting.requests)} distinct prompts for {spec.requests} requests: "
            "they are repeated in order",
        )
    return RequestBatch(
        requests=_repeat(fitting.requests, spec.requests),
        dropped=notes,
        rendered_first=fitting.rendered_first,
    )


@dataclass(frozen=True, slots=True)
class _Fitting:
    """The distinct requests that fit, at most as many as asked for, and what was passed over."""

    requests: list[Request]
    left_out: list[str]
    notes: tuple[str, ...]
    rendered_first: str


def _fitting_prompts(
    workload: Workload, tokenizer: Tokenizer, spec: WorkloadSpec, max_prompt_tokens: int
) -> _Fitting:
    requests: list[Request] = []
    left_out: list[str] = []
    rendered_first = ""
    for prompt in workload.prompts:
        if len(requests) == spec.requests:
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
        requests.append(
            Request(
                id=prompt.id,
                prompt_token_ids=ids,
                max_new_tokens=spec.max_new_tokens,
                temperature=spec.temperature,
                stop_token_ids=tokenizer.stop_token_ids,
                category=prompt.category,
            )
        )
    return _Fitting(requests, left_out, (), rendered_first)


def _fitting_shapes(
    workload: Workload, tokenizer: Tokenizer, spec: WorkloadSpec, max_prompt_tokens: int
) -> _Fitting:
    """Random prompts have no natural end: they run to their traced length, without stop tokens."""
    ordinary = _ordinary_token_ids(tokenizer)
    draw = random.Random(spec.seed)
    requests: list[Request] = []
    left_out: list[str] = []
    shortened = 0
    for number, shape in enumerate(workload.shapes, start=1):
        if len(requests) == spec.requests:
            break
        if shape.input_tokens > max_prompt_tokens:
            left_out.append(
                f"trace-{number}: {shape.input_tokens} tokens, allowed are {max_prompt_tokens}"
            )
            continue
        shortened += shape.output_tokens > spec.max_new_tokens
        requests.append(
            Request(
                id=f"trace-{number}",
                prompt_token_ids=tuple(draw.choices(ordinary, k=shape.input_tokens)),
                max_new_tokens=min(shape.output_tokens, spec.max_new_tokens),
                temperature=spec.temperature,
                category=SHAPE_ONLY_CATEGORY,
            )
        )
    notes: tuple[str, ...] = (
        "arrival times: requests are served as soon as the batch has a free place",
    )
    if shortened:
        notes += (f"{shortened} outputs are cut to max_new_tokens = {spec.max_new_tokens}",)
    first = tokenizer.decode(requests[0].prompt_token_ids) if requests else ""
    return _Fitting(requests, left_out, notes, first)


def _ordinary_token_ids(tokenizer: Tokenizer) -> list[int]:
    """Ids that plain text uses: no special token, no padding row of the embedding."""
    added = {*tokenizer.encode(""), *tokenizer.stop_token_ids}
    text = "\n".join(p.messages[0].content for p in read_builtin(BUILTIN_CATEGORIES))
    return sorted({*tokenizer.encode(text)} - added)


def _repeat(distinct: list[Request], wanted: int) -> tuple[Request, ...]:
    """Repeat `distinct` in order up to `wanted`; an id met again gets `#2`, `#3`..."""
    taken: set[str] = set()
    times: Counter[str] = Counter()
    requests: list[Request] = []
    for request in islice(cycle(distinct), wanted):
        new_id = request.id
        while new_id in taken:
            times[request.id] += 1
            new_id = f"{request.id}#{times[request.id] + 1}"
        taken.add(new_id)
        requests.append(request if new_id == request.id else replace(request, id=new_id))
    return tuple(requests)
