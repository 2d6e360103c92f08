"""Verify time against tree nodes, as trials of one run measured it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiles.records import Record, StepAnatomy, TrialResult

HARDLY_LONGER = 1.10  # our judgement: verify_ms against that of the smallest tree


class VerifyPoint(Record):
    """Median verify time of one side of a trial whose trees had `tree_nodes` nodes on average."""

    trial: int
    tree_nodes: float  # per request and step, root included
    verify_ms: float


def verify_curve(result: TrialResult, siblings: Sequence[TrialResult] = ()) -> list[VerifyPoint]:
    """The trial, its baseline and the siblings that differ only in their trees, by nodes."""
    points = [_point(result, result.anatomy, _nodes(result))]
    if result.config.draft_len > 0:
        points.append(_point(result, result.baseline_anatomy, 1.0))
    points += [
        _point(other, other.anatomy, _nodes(other))
        for other in siblings
        if _differs_only_in_trees(other, result)
    ]
    return sorted((p for p in points if p is not None), key=lambda point: point.tree_nodes)


def free_until(points: Sequence[VerifyPoint]) -> tuple[float | None, float | None]:
    """The largest tree that still cost hardly more than the smallest, and the next one measured.

    The first is None with fewer than two points, the second where no measured tree cost more.
    """
    if len(points) < 2:
        return None, None
    allowed_ms = HARDLY_LONGER * points[0].verify_ms
    costly = next((k for k, point in enumerate(points) if point.verify_ms > allowed_ms), None)
    if costly is None:
        return points[-1].tree_nodes, None
    return points[costly - 1].tree_nodes, points[costly].tree_nodes


def verify_ms_at(points: Sequence[VerifyPoint], tree_nodes: float) -> float | None:
    """Verify time of a tree between two measured ones, None outside of what was measured."""
    if not points or not points[0].tree_nodes <= tree_nodes <= points[-1].tree_nodes:
        return None
    nodes, times_ms = zip(*((p.tree_nodes, p.verify_ms) for p in points), strict=True)
    return float(np.interp(tree_nodes, nodes, times_ms))


def _point(
    result: TrialResult, anatomy: StepAnatomy | None, nodes: float | None
) -> VerifyPoint | None:
    if anatomy is None or nodes is None:
        return None
    verify_ms = anatomy.phases["verify"].p50_ms
    return VerifyPoint(trial=result.number, tree_nodes=nodes, verify_ms=verify_ms)


def _nodes(result: TrialResult) -> float | None:
    return result.metrics.tree_nodes_mean if result.metrics else None


def _differs_only_in_trees(other: TrialResult, result: TrialResult) -> bool:
    return (
        other.number != result.number
        and other.config.baseline() == result.config.baseline()
        and (other.workload, other.device, other.precision)
        == (result.workload, result.device, result.precision)
    )
