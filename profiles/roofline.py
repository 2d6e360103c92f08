"""The verify pass against the measured limits of its device, and how many nodes are still free.

A pass over the trees of all requests reads every weight once, the keys and values of their
contexts, and computes each node. While reading takes longer than computing, further nodes cost
nothing: the roofline says until when they should, and trials of the same run with other trees say
until when they did.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from profiles.records import ModelShape, Record, TrialResult
from profiles.verify_curve import VerifyPoint, free_until, verify_curve

if TYPE_CHECKING:
    import pandas as pd

CACHED_NOTE = (
    "verify was faster than the limits allow: a cache held what a pass reads, or the device was "
    "busy while they were measured; the roofline says nothing here"
)


class NoRoofline(Record):
    """Why there is none."""

    reason: str


class Roofline(Record):
    """One mean verify pass over `sequences` trees of `tree_nodes` nodes behind `context_tokens`.

    `bytes_read` and `flop` are the least that such a pass needs: activations, and padding of the
    trees to a common size, come on top. `bound` is the side whose limit takes longer;
    limit_share = the time that this side needs at its limit / verify_ms: 1 is the roof. `free_*`
    count nodes per sequence, root included: up to `free_until_nodes_by_limits` reading takes
    longer than computing; up to `free_until_nodes_measured` verify took hardly longer in trials
    of this run, and `costly_nodes_measured` is the next tree that was measured.
    """

    steps: int
    sequences: float
    tree_nodes: float
    context_tokens: float
    verify_ms: float
    bytes_read: float
    flop: float
    intensity_flop_per_byte: float
    ridge_flop_per_byte: float
    achieved_bytes_per_s: float
    achieved_flop_per_s: float
    read_share: float
    matmul_share: float
    bound: Literal["memory", "compute"]
    limit_share: float
    free_until_nodes_by_limits: float
    free_until_nodes_measured: float | None
    costly_nodes_measured: float | None
    measured: list[VerifyPoint]
    note: str | None = None

    @property
    def free_nodes_by_limits(self) -> float:
        """How many more nodes per sequence should cost nothing."""
        return max(0.0, self.free_until_nodes_by_limits - self.tree_nodes)

    @property
    def free_nodes_measured(self) -> float | None:
        """How many more nodes per sequence did cost hardly anything, None where none were tried."""
        if self.free_until_nodes_measured is None:
            return None
        return max(0.0, self.free_until_nodes_measured - self.tree_nodes)


@dataclass(frozen=True, slots=True)
class _Limits:
    read: float  # bytes/s
    matmul: float  # FLOP/s


@dataclass(frozen=True, slots=True)
class _Passes:
    """Sums over the steps that verified and read no prompt."""

    steps: int
    verify_ms: float
    sequences: int
    nodes: int
    context_tokens: int
    pairs: int  # of a node and a position it may look at


def roofline(
    result: TrialResult,
    steps: pd.DataFrame,
    requests: pd.DataFrame,
    siblings: Sequence[TrialResult] = (),
) -> Roofline | NoRoofline:
    """Compare the verify passes of a trial with its device's limits.

    `steps` and `requests` are the trial's tables; `siblings` other trials of its run.
    """
    shape, limits = result.shape, result.limits
    if shape is None or limits is None:
        return NoRoofline(reason="the trial's record holds no model shape: its engine gives none")
    if limits.read_bytes_per_s is None or limits.matmul_flop_per_s is None:
        return NoRoofline(reason=limits.reason or "the device's limits were not measured")
    at_best = _Limits(limits.read_bytes_per_s, limits.matmul_flop_per_s)
    seen = _passes(steps, requests)
    if seen is None:
        return NoRoofline(reason="no step verified without reading a prompt in the same pass")
    return _compare(seen, shape, at_best, result, siblings)


def _passes(steps: pd.DataFrame, requests: pd.DataFrame) -> _Passes | None:
    """Add up passes. A sequence's context is its prompt and what earlier steps committed."""
    # NOTE a step's own index begins anew with every round; the rows of the table do not.
    rows = steps.reset_index(drop=True)
    rows = rows.explode(["request_ids", "tree_nodes", "committed"]).dropna(subset="request_ids")
    rows = rows.astype({"tree_nodes": "int64", "committed": "int64"})
    prompts = rows["request_ids"].map(requests.set_index("id")["prompt_tokens"])
    committed = rows.groupby("request_ids")["committed"].cumsum() - rows["committed"]
    rows["context"] = prompts + committed
    rows = rows[(rows["context_requests"] == 0) & rows["context"].notna()]
    verify_ms = float(rows["verify_ms"].groupby(rows.index).first().sum())
    if verify_ms <= 0:
        return None
    nodes, context = rows["tree_nodes"], rows["context"]
    return _Passes(
        steps=rows.index.nunique(),
        verify_ms=verify_ms,
        sequences=len(rows),
        nodes=int(nodes.sum()),
        context_tokens=int(context.sum()),
        pairs=int((nodes * (context + nodes)).sum()),
    )


def _compare(
    seen: _Passes,
    shape: ModelShape,
    limits: _Limits,
    result: TrialResult,
    siblings: Sequence[TrialResult],
) -> Roofline:
    bytes_read = _bytes_read(seen, shape)
    flop = 2.0 * shape.linear_parameters * seen.nodes + _attention_flop(shape) * seen.pairs
    read_s, matmul_s = bytes_read / limits.read, flop / limits.matmul
    verify_s = seen.verify_ms / 1e3
    points = verify_curve(result, siblings)
    free, costly = free_until(points)
    limit_share = max(read_s, matmul_s) / verify_s
    return Roofline(
        steps=seen.steps,
        sequences=seen.sequences / seen.steps,
        tree_nodes=seen.nodes / seen.sequences,
        context_tokens=seen.context_tokens / seen.sequences,
        verify_ms=seen.verify_ms / seen.steps,
        bytes_read=bytes_read / seen.steps,
        flop=flop / seen.steps,
        intensity_flop_per_byte=flop / bytes_read,
        ridge_flop_per_byte=limits.matmul / limits.read,
        achieved_bytes_per_s=bytes_read / verify_s,
        achieved_flop_per_s=flop / verify_s,
        read_share=read_s / verify_s,
        matmul_share=matmul_s / verify_s,
        bound="memory" if read_s >= matmul_s else "compute",
        limit_share=limit_share,
        free_until_nodes_by_limits=_nodes_at_balance(seen, shape, limits),
        free_until_nodes_measured=free,
        costly_nodes_measured=costly,
        measured=points,
        note=CACHED_NOTE if limit_share > 1 else None,
    )


def _bytes_read(seen: _Passes, shape: ModelShape) -> float:
    """Weights once a pass; keys and values of contexts; embedding, keys and values of nodes."""
    context = seen.context_tokens * shape.kv_bytes_per_token
    return float(seen.steps * shape.weights_read_bytes + context + seen.nodes * _node_bytes(shape))


def _node_bytes(shape: ModelShape) -> int:
    """A node's embedding row is read; its keys and values are written and read."""
    return shape.embedding_row_bytes + 2 * shape.kv_bytes_per_token


def _attention_flop(shape: ModelShape) -> float:
    """Of one node and one position: a product with the key and one with the value."""
    return 4.0 * shape.layers * shape.heads * shape.head_dim


def _nodes_at_balance(seen: _Passes, shape: ModelShape, limits: _Limits) -> float:
    """Nodes per sequence at which computing takes as long as reading, at the same contexts.

    For s sequences of context c: s n (2 P + a (c + n)) / matmul = (W + s (c k + n b)) / read,
    which is quadratic in n.
    """
    sequences = seen.sequences / seen.steps
    context = seen.context_tokens / seen.sequences
    attention = _attention_flop(shape)
    square = sequences * attention / limits.matmul
    linear = sequences * (
        (2.0 * shape.linear_parameters + attention * context) / limits.matmul
        - _node_bytes(shape) / limits.read
    )
    fixed = (
        shape.weights_read_bytes + sequences * context * shape.kv_bytes_per_token
    ) / limits.read
    return (math.sqrt(linear**2 + 4 * square * fixed) - linear) / (2 * square)
