"""Where the wall time of a step goes: its phases, and the gaps between steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.charts.style import PHASE_COLOURS, figure, message, see_through
from profiles.records import STEP_PHASES, StepAnatomy

GAPS = "between steps"
COLOURS = {**PHASE_COLOURS, GAPS: see_through("#9AA3AD", 0.35)}
_BAR_PX = 46


@dataclass(frozen=True)
class Part:
    """One phase of one serving; `share_pct` is of the serving's wall time."""

    phase: str
    mean_ms: float
    p50_ms: float
    p95_ms: float
    share_pct: float


@dataclass(frozen=True)
class Anatomies:
    """Parts of a mean step by serving, in the order in which a step does them."""

    parts: dict[str, tuple[Part, ...]]


def step_anatomy_info(servings: Mapping[str, StepAnatomy | None]) -> Anatomies:
    """Collect the servings that were taken apart, under the names given."""
    return Anatomies(
        {name: _parts(anatomy) for name, anatomy in servings.items() if anatomy is not None}
    )


def _parts(anatomy: StepAnatomy) -> tuple[Part, ...]:
    times = {**{phase: anatomy.phases[phase] for phase in STEP_PHASES}, GAPS: anatomy.gaps}
    return tuple(
        Part(phase, time.mean_ms, time.p50_ms, time.p95_ms, 100 * time.share)
        for phase, time in times.items()
    )


def step_anatomy_figure(info: Anatomies) -> go.Figure:
    """One bar a serving, its parts end to end."""
    if not info.parts:
        return message("The steps of this trial were not taken apart.")
    chart = figure("Mean time of a step (ms)", "", height=110 + _BAR_PX * len(info.parts))
    for place, phase in enumerate((*STEP_PHASES, GAPS)):
        mine = {name: parts[place] for name, parts in info.parts.items()}
        chart.add_bar(
            x=[part.mean_ms for part in mine.values()],
            y=list(mine),
            name=phase,
            orientation="h",
            marker={"color": COLOURS[phase]},
            customdata=[[part.share_pct, part.p50_ms, part.p95_ms] for part in mine.values()],
            hovertemplate=(
                f"{phase}: %{{x:.2f}} ms, %{{customdata[0]:.1f}} % of wall time<br>"
                "median %{customdata[1]:.2f} ms, p95 %{customdata[2]:.2f} ms<extra>%{y}</extra>"
            ),
        )
    chart.update_layout(barmode="stack", bargap=0.3)
    chart.update_yaxes(autorange="reversed", type="category")
    return chart
