"""What the verified tree nodes of a trial bought, and what a committed token cost in energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from profiles.anatomy import step_total_ms
from profiles.records import EnergyUse, Record, ServeMetrics
from profiles.verify_curve import VerifyPoint, verify_ms_at

if TYPE_CHECKING:
    import pandas as pd

NO_SMALLER_TREE = (
    "the time that rejected nodes took is told by a smaller tree's verify time, and this trial has "
    "no measured baseline or sibling with one"
)
NO_ENERGY = "energy was not measured"


class Efficiency(Record):
    """Tree nodes and energy of one trial, over its generation steps, warm-up excluded.

    verified_nodes = rejected_nodes + accepted_nodes + one root for each request and step. The root
    and every accepted node buy one token each; `cut_tokens` of those were thrown away after a stop
    token or the length limit. wasted_node_share = (verified_nodes - committed tokens) /
    verified_nodes.

    Of all step time, `wasted_draft_share` went to drafting past the furthest token that was
    accepted, each drafted position counted alike; `wasted_verify_share` is what verify took beyond
    a tree of acceptance_length nodes, by measured verify times; `wasted_time_share` is their sum.
    """

    verified_nodes: int
    accepted_nodes: int
    rejected_nodes: int
    cut_tokens: int
    wasted_node_share: float
    verified_nodes_per_committed_token: float
    energy_j_per_committed_token: float | None  # energy that read the prompts included
    energy_reason: str | None = None
    wasted_draft_share: float
    wasted_verify_share: float | None
    wasted_time_share: float | None
    wasted_time_reason: str | None = None


def efficiency(
    steps: pd.DataFrame,
    metrics: ServeMetrics,
    energy: EnergyUse | None = None,
    curve: Sequence[VerifyPoint] = (),
) -> Efficiency:
    """Count nodes in `steps` (as `TrialFolder.steps` reads them) and divide the trial's energy.

    `curve` is the trial's `verify_curve`. Without speculation the root is the only node of a step
    and nothing is wasted.

    Raises:
        ValueError: the steps are not those that `metrics` summarises.
    """
    verified = int(_all(steps, "tree_nodes").sum())
    accepted = int(_all(steps, "accepted").sum())
    committed_each = _all(steps, "committed")
    committed, roots = int(committed_each.sum()), len(committed_each)
    if (committed, roots) != (metrics.committed_tokens, metrics.steps):
        raise ValueError(
            f"{committed} committed tokens in {roots} steps are not the metrics' "
            f"{metrics.committed_tokens} in {metrics.steps}: the steps are of another trial"
        )
    energy_mj = energy.energy_mj if energy else None
    reason = energy.reason if energy else None
    wasted_draft = _wasted_draft_share(steps, len(metrics.position_acceptance))
    wasted_verify = _wasted_verify_share(steps, metrics, curve)
    return Efficiency(
        verified_nodes=verified,
        accepted_nodes=accepted,
        rejected_nodes=verified - roots - accepted,
        cut_tokens=accepted + roots - committed,
        wasted_node_share=(verified - committed) / verified,
        verified_nodes_per_committed_token=verified / committed,
        energy_j_per_committed_token=None if energy_mj is None else energy_mj / 1000 / committed,
        energy_reason=(reason or NO_ENERGY) if energy_mj is None else None,
        wasted_draft_share=wasted_draft,
        wasted_verify_share=wasted_verify,
        wasted_time_share=None if wasted_verify is None else wasted_draft + wasted_verify,
        wasted_time_reason=NO_SMALLER_TREE if wasted_verify is None else None,
    )


def _wasted_draft_share(steps: pd.DataFrame, draft_len: int) -> float:
    """A step drafts for all its requests at once, as far as any of them may accept."""
    if draft_len == 0:
        return 0.0
    furthest = np.array([max(accepted, default=0) for accepted in steps["accepted"]])
    drafted = steps["draft_len"].astype("Float64").fillna(draft_len).to_numpy(dtype=np.float64)
    wasted = 1 - furthest / drafted.clip(min=1)  # where nothing was drafted it took no time
    wasted_ms = steps["draft_ms"].to_numpy(dtype=np.float64) * wasted
    return float(wasted_ms.sum() / step_total_ms(steps).sum())


def _wasted_verify_share(
    steps: pd.DataFrame, metrics: ServeMetrics, curve: Sequence[VerifyPoint]
) -> float | None:
    if not metrics.position_acceptance:
        return 0.0
    whole_ms = verify_ms_at(curve, metrics.tree_nodes_mean)
    needed_ms = verify_ms_at(curve, metrics.acceptance_length)
    if whole_ms is None or needed_ms is None:
        return None
    verifying = int((steps["request_ids"].map(len) > 0).sum())
    return max(0.0, whole_ms - needed_ms) * verifying / float(step_total_ms(steps).sum())


def _all(steps: pd.DataFrame, column: str) -> NDArray[np.int64]:
    """One entry for each request that a step served."""
    lists = [np.asarray(values, dtype=np.int64) for values in steps[column]]
    return np.concatenate([np.zeros(0, dtype=np.int64), *lists])
