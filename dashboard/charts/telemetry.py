"""The timeline of a trial: activity, memory, power, clocks and throttling over its phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import plotly.graph_objects as go

from dashboard.charts.panels import TITLE_PX, Panel, lanes, stacked
from dashboard.charts.style import GREY, PALETTE, PHASE_COLOURS, message, see_through
from dashboard.data.phase_shares import PhaseShares
from dashboard.formats import GIB
from profiles.telemetry.columns import HOST, HOST_NAMES
from profiles.telemetry.held_clocks import HeldClocks
from profiles.telemetry.overview import Overview
from profiles.telemetry.parts import Reasons
from profiles.telemetry.thinning import Floats, Series

ACTIVITY = "GPU activity (%)"
THROTTLING = "Clocks held by"
PHASES = "Phase (% of time)"
NO_GPU = "no GPU was sampled"
_PANEL_PX = 105


@dataclass(frozen=True)
class Counter:
    """How a column is shown. Counters with the same panel share its axis."""

    title: str
    panel: str
    divisor: float
    colour: str


COUNTERS = {
    "sm_active_pct": Counter("SM active", ACTIVITY, 1, PALETTE[0]),
    "tensor_active_pct": Counter("tensor active", ACTIVITY, 1, PALETTE[5]),
    "dram_active_pct": Counter("DRAM active", ACTIVITY, 1, PALETTE[2]),
    "gpu_busy_pct": Counter("GPU busy (a kernel ran)", "GPU busy (%)", 1, GREY),
    "memory_used_bytes": Counter("GPU memory used", "GPU memory (GiB)", GIB, PALETTE[1]),
    "power_mw": Counter("GPU power", "Power (W)", 1000, PALETTE[3]),
    "sm_clock_mhz": Counter("SM clock", "SM clock (MHz)", 1, PALETTE[4]),
    "temperature_c": Counter("GPU temperature", "Temp. (°C)", 1, PALETTE[5]),
    "host_cpu_pct": Counter("host CPU, all cores", "Host CPU (%)", 1, PALETTE[0]),
    "host_memory_used_bytes": Counter("host memory used", "Host mem. (GiB)", GIB, PALETTE[1]),
}


@dataclass(frozen=True)
class Curve:
    """One counter; seconds from the trial's first sample, values in the unit of its panel."""

    column: str
    counter: Counter
    series: Series


@dataclass(frozen=True)
class Timeline:
    """What the chart shows of one GPU, the host, and the trial's steps.

    `held` is None where throttling was not sampled. `missing` gives a reason for each counter that
    has no value at all, by its title.
    """

    window_s: tuple[float, float]
    curves: tuple[Curve, ...]
    held: HeldClocks | None
    phases: PhaseShares | None
    missing: dict[str, str]


def timeline_info(
    overview: Overview,
    gpu: str | None,
    reasons: Reasons,
    phases: PhaseShares | None = None,
    window: tuple[float, float] | None = None,
) -> Timeline:
    """Collect the counters of `gpu` and of the host.

    `window` is on the samples' own clock, and `overview` holds what lies in it; without one it is
    all the trial.
    """
    span = overview.span_s
    if span is None:
        return Timeline((0.0, 0.0), (), None, None, {})
    window, origin = window or span, span[0]
    curves, missing = [], {}
    for column, counter in COUNTERS.items():
        source = HOST if column in HOST_NAMES else gpu
        series = overview.curves.get(source or "", {}).get(column)
        if series is None:
            missing[counter.title] = why_missing(reasons, source, column)
        else:
            curves.append(Curve(column, counter, series.since(origin).scaled(counter.divisor)))
    held = overview.held.get(gpu or "")
    if held is None:
        missing["throttling"] = why_missing(reasons, gpu, "throttle_reasons")
    return Timeline(
        (window[0] - origin, window[1] - origin),
        tuple(curves),
        HeldClocks(held.edges_s - origin, held.percents) if held else None,
        PhaseShares(phases.edges_s - origin, phases.percents) if phases else None,
        missing,
    )


def why_missing(reasons: Reasons, source: str | None, column: str) -> str:
    """What the sampler said of a column without values."""
    said = reasons.columns.get(source or "", {}).get(column)
    if said is not None:
        return said.reason
    if source is None:
        return "; ".join(reasons.notices) or NO_GPU
    return "the sampler recorded no reason"


def timeline_figure(info: Timeline) -> go.Figure:
    """One panel a unit, above each other on one axis of time."""
    if not info.curves and info.phases is None:
        return message("No samples yet.")
    by_panel: dict[str, list[Curve]] = {}
    for curve in info.curves:
        by_panel.setdefault(curve.counter.panel, []).append(curve)
    panels = [_curves_panel(title, curves) for title, curves in by_panel.items()]
    if info.held and info.held.percents:
        held = lanes(info.held.edges_s, info.held.percents, "s", _PANEL_PX)
        axis = {**held.axis, "title": _title(THROTTLING)}
        panels.append(replace(held, axis=axis, left_px=held.left_px + TITLE_PX))
    if info.phases:
        panels.append(_phases_panel(info.phases))
    time_title = "Seconds since the trial's first sample"
    return stacked(panels, time_title, info.window_s, hovermode="x unified")


def _title(text: str) -> dict[str, object]:
    return {"text": text, "font": {"size": 12}}


def _curves_panel(title: str, curves: Sequence[Curve]) -> Panel:
    axis: dict[str, object] = {"title": _title(title), "rangemode": "tozero"}
    if title.endswith("(%)"):
        axis["range"] = [0, 105]
    return Panel(_PANEL_PX, axis, [trace for curve in curves for trace in _traces(curve)])


def _traces(curve: Curve) -> list[dict[str, object]]:
    counter, series = curve.counter, curve.series
    line = {
        "type": "scatter",
        "x": series.seconds.round(6),
        "y": series.mean.round(3),
        "mode": "lines",
        "connectgaps": False,
        "name": counter.title,
        "legendgroup": counter.title,
        "showlegend": counter.panel == ACTIVITY,
        "line": {"color": counter.colour, "width": 1.5},
        "hovertemplate": "%{y:.1f}",
    }
    if not series.is_thinned:
        return [line]
    band_x, band_y = _outline(series)
    band = {
        "type": "scatter",
        "x": band_x.round(6),
        "y": band_y.round(3),
        "fill": "toself",
        "mode": "none",
        "fillcolor": see_through(counter.colour),
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": counter.title,
    }
    line["customdata"] = np.column_stack([series.low, series.high]).round(3)
    line["hovertemplate"] = "%{y:.1f} (%{customdata[0]:.1f} to %{customdata[1]:.1f})"
    return [band, line]


def _outline(series: Series) -> tuple[Floats, Floats]:
    """The band between `low` and `high` as closed outlines, one for each run without a gap."""
    runs = np.split(np.arange(len(series.mean)), np.flatnonzero(np.diff(np.isnan(series.mean))) + 1)
    x: list[Floats] = []
    y: list[Floats] = []
    lift = np.array([np.nan])
    for run in runs:
        if len(run) and not np.isnan(series.mean[run[0]]):
            x += [series.seconds[run], series.seconds[run][::-1], lift]
            y += [series.high[run], series.low[run][::-1], lift]
    return (np.concatenate(x), np.concatenate(y)) if x else (np.empty(0), np.empty(0))


def _phases_panel(phases: PhaseShares) -> Panel:
    traces = [
        {
            "type": "scatter",
            "x": phases.edges_s.round(6),
            "y": np.append(percents, percents[-1:]),
            "mode": "lines",
            "line": {"width": 0, "shape": "hv"},
            "stackgroup": "phases",
            "fillcolor": PHASE_COLOURS[phase],
            "name": phase,
            "legendgroup": phase,
            "hovertemplate": "%{y:.0f} %",
        }
        for phase, percents in phases.percents.items()
    ]
    return Panel(_PANEL_PX, {"title": _title(PHASES), "range": [0, 100]}, traces)
