"""The timeline of a trial: activity, memory, power, clocks and throttling over its phases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.charts.style import GREY, PALETTE, PHASE_COLOURS, lanes, message, see_through
from dashboard.data.phase_shares import PhaseShares
from dashboard.data.telemetry_samples import TelemetrySamples
from dashboard.data.thinning import Floats, Series, thin, within
from dashboard.data.throttling import HeldClocks, held_clocks
from dashboard.formats import GIB
from profiles.telemetry.columns import HOST, HOST_NAMES

ACTIVITY = "GPU activity (%)"
THROTTLING = "Clocks held by"
PHASES = "Phase (% of time)"
NO_GPU = "no GPU was sampled"


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
    samples: TelemetrySamples,
    gpu: str | None,
    phases: PhaseShares | None = None,
    window: tuple[float, float] | None = None,
) -> Timeline:
    """Collect the counters of `gpu` and of the host; `window` is on the samples' own clock."""
    span = samples.span_s
    if span is None:
        return Timeline((0.0, 0.0), (), None, None, {})
    window, origin = window or span, span[0]
    shown = (window[0] - origin, window[1] - origin)
    curves, missing, held = [], {}, None
    for column, counter in COUNTERS.items():
        source = HOST if column in HOST_NAMES else gpu
        of_source = samples.sources.get(source or "")
        if of_source is None or not of_source.measured(column):
            missing[counter.title] = why_missing(samples, source, column)
            continue
        inside = within(of_source.t_s, window)
        series = thin(of_source.t_s[inside] - origin, of_source.columns[column][inside])
        curves.append(Curve(column, counter, series.scaled(counter.divisor)))
    of_gpu = samples.sources.get(gpu or "")
    if of_gpu is not None and of_gpu.measured("throttle_reasons"):
        inside = within(of_gpu.t_s, window)
        bits = of_gpu.columns["throttle_reasons"][inside]
        held = held_clocks(of_gpu.t_s[inside] - origin, bits, shown)
    else:
        missing["throttling"] = why_missing(samples, gpu, "throttle_reasons")
    shifted = PhaseShares(phases.edges_s - origin, phases.percents) if phases else None
    return Timeline(shown, tuple(curves), held, shifted, missing)


def why_missing(samples: TelemetrySamples, source: str | None, column: str) -> str:
    """What the sampler said of a column without values."""
    said = samples.reasons.columns.get(source or "", {}).get(column)
    if said is not None:
        return said.reason
    if source is None:
        return "; ".join(samples.reasons.notices) or NO_GPU
    return "the sampler recorded no reason"


def timeline_figure(info: Timeline) -> go.Figure:
    """One panel a unit, above each other on one axis of time."""
    if not info.curves and info.phases is None:
        return message("No samples yet.")
    panels = list(dict.fromkeys(curve.counter.panel for curve in info.curves))
    held = info.held if info.held and info.held.percents else None
    rows = [*panels, *([THROTTLING] if held else []), *([PHASES] if info.phases else [])]
    spacing = 0.2 / len(rows)
    chart = make_subplots(rows=len(rows), cols=1, shared_xaxes=True, vertical_spacing=spacing)
    for curve in info.curves:
        _add_curve(chart, curve, rows.index(curve.counter.panel) + 1)
    if held:
        lanes(chart, held.edges_s, held.percents, rows.index(THROTTLING) + 1, "s")
    if info.phases:
        _add_phases(chart, info.phases, rows.index(PHASES) + 1)
    for row, title in enumerate(rows, 1):
        chart.update_yaxes(title={"text": title, "font": {"size": 12}}, row=row, col=1)
    chart.update_layout(
        height=110 + 125 * len(rows),
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.01, "x": 0},
        legend_traceorder="normal",
        hovermode="x unified",
    )
    chart.update_xaxes(range=list(info.window_s))
    chart.update_xaxes(title="Seconds since the trial's first sample", row=len(rows))
    return chart


def _add_curve(chart: go.Figure, curve: Curve, row: int) -> None:
    counter, series = curve.counter, curve.series
    if series.is_thinned:
        band_x, band_y = _outline(series)
        chart.add_scatter(
            x=band_x, y=band_y, fill="toself", mode="none", fillcolor=see_through(counter.colour),
            hoverinfo="skip", showlegend=False, legendgroup=counter.title, row=row, col=1,
        )  # fmt: skip
    chart.add_scatter(
        x=series.seconds,
        y=series.mean,
        mode="lines",
        connectgaps=False,
        name=counter.title,
        legendgroup=counter.title,
        showlegend=counter.panel == ACTIVITY,
        line={"color": counter.colour, "width": 1.5},
        customdata=np.column_stack([series.low, series.high]) if series.is_thinned else None,
        hovertemplate="%{y:.1f}"
        + (" (%{customdata[0]:.1f} to %{customdata[1]:.1f})" if series.is_thinned else ""),
        row=row,
        col=1,
    )
    chart.update_yaxes(
        rangemode="tozero", range=[0, 105] if counter.panel.endswith("(%)") else None, row=row
    )


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


def _add_phases(chart: go.Figure, phases: PhaseShares, row: int) -> None:
    for phase, percents in phases.percents.items():
        chart.add_scatter(
            x=phases.edges_s,
            y=np.append(percents, percents[-1:]),
            mode="lines",
            line={"width": 0, "shape": "hv"},
            stackgroup="phases",
            fillcolor=PHASE_COLOURS[phase],
            name=phase,
            legendgroup=phase,
            hovertemplate="%{y:.0f} %",
            row=row,
            col=1,
        )
    chart.update_yaxes(range=[0, 100], row=row)
