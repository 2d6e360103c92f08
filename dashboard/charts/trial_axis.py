"""The axis that shows trials side by side."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from profiles.records import TrialConfig, TrialResult

ROOM_FOR_CONFIGS = 20
MOST_TICKS = 30


def trial_labels(results: Sequence[TrialResult]) -> tuple[str, ...]:
    """`#5` over its knobs, or the number alone where many trials share the axis."""
    if len(results) > ROOM_FOR_CONFIGS:
        return tuple(f"#{r.number}" for r in results)
    return tuple(f"#{r.number}<br>{_knobs(r.config)}" for r in results)


def stack_by_trial(chart: go.Figure, labels: Sequence[str]) -> None:
    """Stack the bars of `chart` on one category a trial, at a width that suits their number."""
    chart.update_layout(barmode="stack", bargap=0.25 if len(labels) > 6 else 0.6)
    chart.update_xaxes(type="category", nticks=MOST_TICKS)


def _knobs(config: TrialConfig) -> str:
    least = f"{config.draft_len_min}-" if config.draft_len_min else ""
    drafted = f"W{config.beam_width} D{least}{config.draft_len}" if config.draft_len else "no spec."
    return f"{drafted}<br>B{config.batch_size}"
