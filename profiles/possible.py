"""Refuse step and request records that cannot be true, naming the value and its bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

from profiles.records import STEP_PHASES, RequestRecord, StepRecord

_STEP_LISTS = ("tree_nodes", "accepted", "committed")


def check_requests(requests: Sequence[RequestRecord]) -> None:
    """Check finished requests.

    Raises:
        ValueError: none at all, an id used twice, no output, emissions that do not add up to the
            output, or times that are not finite and increasing from the arrival on.
    """
    if not requests:
        raise ValueError("nothing was served: there is no finished request")
    repeated = [id for id, count in Counter(r.id for r in requests).items() if count > 1]
    if repeated:
        raise ValueError(f"request ids appear twice: {repeated[:3]}")
    for request in requests:
        _check_request(request)


def _check_request(request: RequestRecord) -> None:
    name = f"request {request.id!r}"
    if not request.emission_s or len(request.emission_s) != len(request.emission_tokens):
        raise ValueError(
            f"{name}: {len(request.emission_s)} emission_s for "
            f"{len(request.emission_tokens)} emission_tokens; both need one entry an emission"
        )
    if min(request.emission_tokens) < 1:
        raise ValueError(f"{name}: emission_tokens = {request.emission_tokens} has an empty one")
    emitted = sum(request.emission_tokens)
    if emitted != request.output_tokens:
        raise ValueError(f"{name}: emitted {emitted} tokens of {request.output_tokens} in output")
    times = [request.arrival_s, *request.emission_s]
    if not all(map(math.isfinite, times)):
        raise ValueError(f"{name}: arrival_s, emission_s = {times} are not all finite")
    for earlier, later in pairwise(times):
        if later <= earlier:
            raise ValueError(
                f"{name}: non-positive duration {later - earlier} s from {earlier} to {later} s"
            )


def check_steps(
    steps: Sequence[StepRecord], request_ids: Collection[str], beam_width: int, draft_len: int
) -> None:
    """Check engine steps against `beam_width` W and D, what a step drafted: at most `draft_len`.

    Raises:
        ValueError: D > `draft_len`, accepted > D, committed outside 1 .. accepted + 1,
            tree_nodes > 1 + W*D or too few for what was accepted, times that are negative or not
            finite, a step of zero duration, lists of unequal length, or a request that never
            finished.
    """
    for step in steps:
        _check_times(step)
        _check_lists(step, request_ids)
        drafted = draft_len if step.draft_len is None else step.draft_len
        if not 0 <= drafted <= draft_len:
            raise ValueError(
                f"step {step.index}: draft_len = {drafted} outside 0 .. draft_len {draft_len}"
            )
        for id, nodes, accepted, committed in zip(
            step.request_ids, step.tree_nodes, step.accepted, step.committed, strict=True
        ):
            name = f"step {step.index}, request {id!r}"
            if not 0 <= accepted <= drafted:
                raise ValueError(f"{name}: accepted = {accepted} outside 0 .. draft_len {drafted}")
            if not 1 <= committed <= accepted + 1:
                raise ValueError(
                    f"{name}: committed = {committed} outside 1 .. accepted + 1 = {accepted + 1}"
                )
            most_nodes = 1 + beam_width * drafted
            if not accepted + 1 <= nodes <= most_nodes:
                raise ValueError(
                    f"{name}: tree_nodes = {nodes} outside accepted + 1 = {accepted + 1} "
                    f".. 1 + beam_width * draft_len = {most_nodes}"
                )


def _check_times(step: StepRecord) -> None:
    for phase, value in zip(STEP_PHASES, step.phases_ms, strict=True):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(
                f"step {step.index}: {phase}_ms = {value} must be finite, not negative"
            )
    if step.total_ms <= 0:
        raise ValueError(f"step {step.index}: non-positive duration {step.total_ms} ms")


def _check_lists(step: StepRecord, request_ids: Collection[str]) -> None:
    for name in _STEP_LISTS:
        length = len(getattr(step, name))
        if length != len(step.request_ids):
            raise ValueError(
                f"step {step.index}: {length} {name} for {len(step.request_ids)} request_ids"
            )
    unfinished = [id for id in step.request_ids if id not in request_ids]
    if unfinished:
        raise ValueError(f"step {step.index}: requests never finished: {unfinished[:3]}")
