"""Host and GPU counters over the time of one trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.charts.style import PALETTE, message
from dashboard.formats import MIB

if TYPE_CHECKING:
    import pandas as pd

MAX_POINTS = 240
SHORTEST_AXIS_S = 10.0
GIB = 1024 * MIB

# column: title with unit, divisor
SHOWN = {
    "host_cpu_pct": ("Host CPU (%)", 1),
    "host_memory_used_bytes": ("Host memory used (GiB)", GIB),
    "gpu_busy_pct": ("GPU busy (%)", 1),
    "sm_active_pct": ("SM active (%)", 1),
    "tensor_active_pct": ("Tensor active (%)", 1),
    "dram_active_pct": ("DRAM active (%)", 1),
    "memory_used_bytes": ("GPU memory used (GiB)", GIB),
    "power_mw": ("GPU power (W)", 1000),
    "sm_clock_mhz": ("SM clock (MHz)", 1),
    "temperature_c": ("GPU temperature (°C)", 1),
}


@dataclass(frozen=True)
class Line:
    """One counter of one source: the host, or a GPU by its UUID. None is a gap."""

    column: str
    title: str
    source: str
    seconds: tuple[float, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Telemetry:
    """The counters that have at least one value."""

    lines: tuple[Line, ...]


def telemetry_info(samples: pd.DataFrame) -> Telemetry:
    """Collect the counters, seconds from the first sample, thinned to `MAX_POINTS` a line."""
    lines = []
    start = samples["t_s"].min()
    for column, (title, divisor) in SHOWN.items():
        for source, rows in samples.groupby("source"):
            if rows[column].notna().any():
                rows = rows.iloc[:: -(-len(rows) // MAX_POINTS)]
                lines.append(
                    Line(
                        column=column,
                        title=title,
                        source=str(source),
                        seconds=tuple((rows["t_s"] - start).round(3)),
                        values=tuple(None if v != v else v / divisor for v in rows[column]),
                    )
                )
    return Telemetry(tuple(lines))


def telemetry_figure(info: Telemetry) -> go.Figure:
    """One small panel a counter, two in a row."""
    if not info.lines:
        return message("No samples yet.")
    titles = list(dict.fromkeys(line.title for line in info.lines))
    rows = -(-len(titles) // 2)
    chart = make_subplots(rows=rows, cols=2, subplot_titles=titles, horizontal_spacing=0.06)
    sources = list(dict.fromkeys(line.source for line in info.lines))
    for line in info.lines:
        place = titles.index(line.title)
        chart.add_scatter(
            x=line.seconds,
            y=line.values,
            mode="lines+markers",
            marker={"size": 3},
            name=line.source,
            line={"color": PALETTE[sources.index(line.source) % len(PALETTE)], "width": 1.5},
            hovertemplate="%{y:.1f} at %{x:.0f} s<extra>" + line.source + "</extra>",
            row=place // 2 + 1,
            col=place % 2 + 1,
        )
    chart.update_layout(
        height=60 + 170 * rows, showlegend=False, margin={"l": 10, "r": 10, "t": 30, "b": 10}
    )
    chart.update_yaxes(rangemode="tozero", automargin=True)
    last = max(line.seconds[-1] for line in info.lines)
    chart.update_xaxes(range=[0, max(last, SHORTEST_AXIS_S)])
    chart.update_xaxes(title="Seconds since the trial began", row=rows)
    return chart
