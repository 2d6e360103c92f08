"""The timeline of an imported profile: what ran when, and the sampled GPU metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.charts.style import PALETTE, lanes, message
from dashboard.data.capture_times import CaptureTimes, Intervals
from dashboard.data.coverage import Floats, covered_pct
from dashboard.data.thinning import Series, thin, within

BUCKETS = 600
NAMES = {
    "sm_active_pct": "SM active",
    "tensor_active_pct": "tensor active",
    "dram_read_pct": "DRAM read",
    "dram_write_pct": "DRAM write",
    "gpc_clock_mhz": "GPC clock",
}
ACTIVITY, CLOCK = "GPU metrics (%)", "Clock (MHz)"


@dataclass(frozen=True)
class Lane:
    """Percent of each bucket in which something of this kind ran; `events` touch the window."""

    label: str
    events: int
    busy_pct: Floats


@dataclass(frozen=True)
class MetricCurve:
    """One sampled metric of one GPU; `series.seconds` holds milliseconds."""

    title: str
    panel: str
    series: Series


@dataclass(frozen=True)
class CaptureTimeline:
    """The data of the chart, in ms since the capture's first event. A bucket is between edges."""

    edges_ms: Floats
    lanes: tuple[Lane, ...]
    curves: tuple[MetricCurve, ...]


def capture_timeline_info(times: CaptureTimes, window_ms: tuple[float, float]) -> CaptureTimeline:
    """Cut `window_ms` into buckets; lanes and metrics without anything inside it stay, empty."""
    edges = np.linspace(window_ms[0], window_ms[1], BUCKETS + 1)
    curves = []
    for metric in times.metrics:
        inside = within(metric.at_ms, window_ms)
        title = NAMES[metric.metric] + ("" if metric.gpu is None else f", GPU {metric.gpu}")
        panel = CLOCK if metric.metric.endswith("_mhz") else ACTIVITY
        series = thin(metric.at_ms[inside], metric.values[inside])
        curves.append(MetricCurve(title, panel, series))
    return CaptureTimeline(edges, tuple(_lane(lane, edges) for lane in times.lanes), tuple(curves))


def _lane(lane: Intervals, edges: Floats) -> Lane:
    inside = (lane.end_ms >= edges[0]) & (lane.start_ms <= edges[-1])
    start, end = lane.start_ms[inside], lane.end_ms[inside]
    return Lane(lane.label, int(inside.sum()), covered_pct(start, end, edges))


def capture_timeline_figure(info: CaptureTimeline) -> go.Figure:
    """Lanes on top, a darker blue where more of the time is filled; metrics below them."""
    if not info.lanes and not info.curves:
        return message("Nothing in this file has a time: it holds totals only.")
    panels = [panel for panel in (ACTIVITY, CLOCK) if any(c.panel == panel for c in info.curves)]
    heights = [*([26 * len(info.lanes) + 10] if info.lanes else []), *(150 for _ in panels)]
    chart = make_subplots(
        rows=len(heights), cols=1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.04
    )
    if info.lanes:
        filled = {f"{lane.label} ({lane.events:,})": lane.busy_pct for lane in info.lanes}
        lanes(chart, info.edges_ms, filled, 1, "ms")
    for number, curve in enumerate(info.curves):
        row = len(heights) - len(panels) + panels.index(curve.panel) + 1
        chart.add_scatter(
            x=curve.series.seconds,
            y=curve.series.high,
            mode="lines",
            name=curve.title,
            line={"color": PALETTE[(number + 1) % len(PALETTE)], "width": 1.3},
            hovertemplate="%{y:.1f}",
            row=row,
            col=1,
        )
        chart.update_yaxes(title=curve.panel, rangemode="tozero", row=row)
    chart.update_layout(
        height=90 + sum(heights),
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.01, "x": 0},
    )
    chart.update_xaxes(range=[info.edges_ms[0], info.edges_ms[-1]])
    chart.update_xaxes(title="Milliseconds since the first event", row=len(heights))
    return chart
