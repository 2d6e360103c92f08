"""What the verified tree nodes of a trial bought, and what a committed token cost in energy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from profiles.records import EnergyUse, Record, ServeMetrics

if TYPE_CHECKING:
    import pandas as pd

TIME_NOT_SPLIT = (
    "the records give one verify_ms for all nodes of a step, and a pass over fewer nodes may take "
    "just as long: a profile with a kernel table, or a run with narrower beams, can tell"
)
NO_ENERGY = "energy was not measured"


class Efficiency(Record):
    """Tree nodes and energy of one trial, over its generation steps, warm-up excluded.

    verified_nodes = rejected_nodes + accepted_nodes + one root for each request and step. The root
    and every accepted node buy one token each; `cut_tokens` of those were thrown away after a stop
    token or the length limit. wasted_node_share = (verified_nodes - committed tokens) /
    verified_nodes. The drafter's time is in `ServeMetrics.time_share.draft`.
    """

    verified_nodes: int
    accepted_nodes: int
    rejected_nodes: int
    cut_tokens: int
    wasted_node_share: float
    verified_nodes_per_committed_token: float
    energy_j_per_committed_token: float | None  # energy that read the prompts included
    energy_reason: str | None = None
    wasted_time_share: float | None = None  # of step time, on nodes that were rejected
    wasted_time_reason: str | None = TIME_NOT_SPLIT


def efficiency(
    steps: pd.DataFrame, metrics: ServeMetrics, energy: EnergyUse | None = None
) -> Efficiency:
    """Count nodes in `steps` (as `TrialFolder.steps` reads them) and divide the trial's energy.

    Without speculation the root is the only node of a step and nothing is wasted.

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
    return Efficiency(
        verified_nodes=verified,
        accepted_nodes=accepted,
        rejected_nodes=verified - roots - accepted,
        cut_tokens=accepted + roots - committed,
        wasted_node_share=(verified - committed) / verified,
        verified_nodes_per_committed_token=verified / committed,
        energy_j_per_committed_token=None if energy_mj is None else energy_mj / 1000 / committed,
        energy_reason=(reason or NO_ENERGY) if energy_mj is None else None,
    )


def _all(steps: pd.DataFrame, column: str) -> NDArray[np.int64]:
    """One entry for each request that a step served."""
    lists = [np.asarray(values, dtype=np.int64) for values in steps[column]]
    return np.concatenate([np.zeros(0, dtype=np.int64), *lists])
