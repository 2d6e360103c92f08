"""The timeline of an imported profile: what ran when, and the sampled GPU metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from dashboard.charts.panels import Panel, lanes, stacked
from dashboard.charts.style import PALETTE, message
from dashboard.data.capture_times import CaptureTimes, Intervals
from dashboard.data.coverage import Floats, covered_pct
from profiles.telemetry.thinning import Series, thin, within

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
    several = len({metric.gpu for metric in times.metrics}) > 1
    for metric in times.metrics:
        inside = within(metric.at_ms, window_ms)
        title = NAMES[metric.metric] + (
            f", GPU {metric.gpu}" if several and metric.gpu is not None else ""
        )
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
    panels = []
    if info.lanes:
        filled = {f"{lane.label} ({lane.events:,})": lane.busy_pct for lane in info.lanes}
        panels.append(lanes(info.edges_ms, filled, "ms", 26 * len(info.lanes) + 10))
    coloured = [
        (curve, PALETTE[number % len(PALETTE)]) for number, curve in enumerate(info.curves, 1)
    ]
    for title in (ACTIVITY, CLOCK):
        traces = [_trace(curve, colour) for curve, colour in coloured if curve.panel == title]
        if traces:
            panels.append(Panel(150, {"title": {"text": title}, "rangemode": "tozero"}, traces))
    window = (float(info.edges_ms[0]), float(info.edges_ms[-1]))
    return stacked(panels, "ms since the first event", window)


def _trace(curve: MetricCurve, colour: str) -> dict[str, object]:
    return {
        "type": "scatter",
        "x": curve.series.seconds,
        "y": curve.series.high,
        "mode": "lines",
        "name": curve.title,
        "line": {"color": colour, "width": 1.3},
        "hovertemplate": "%{y:.1f}",
    }
