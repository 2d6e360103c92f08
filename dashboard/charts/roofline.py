"""The verify pass under the roof that the device's measured limits make."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from dashboard.charts.style import GREY, INK, PALETTE, figure, message
from dashboard.data.coverage import Floats
from profiles.roofline import NoRoofline, Roofline

TERA = 1e12
_MARGIN = 4.0  # how far the axis reaches beyond the points, as a factor


@dataclass(frozen=True)
class RooflineChart:
    """The roof in TFLOP/s over FLOP per byte, and where the mean verify pass is under it."""

    intensities: Floats
    roof_tflop_per_s: Floats
    ridge: float
    intensity: float
    achieved_tflop_per_s: float
    share_pct: float
    bound: str


@dataclass(frozen=True)
class NoRoof:
    """Why there is none."""

    reason: str


def roofline_info(found: Roofline | NoRoofline) -> RooflineChart | NoRoof:
    """Collect the roof around the pass; a share of 100 % is the roof."""
    if isinstance(found, NoRoofline):
        return NoRoof(found.reason)
    at, ridge = found.intensity_flop_per_byte, found.ridge_flop_per_byte
    matmul = found.achieved_flop_per_s / found.matmul_share / TERA
    intensities = np.unique(
        np.append(np.geomspace(min(at, ridge) / _MARGIN, max(at, ridge) * _MARGIN, 50), ridge)
    )
    return RooflineChart(
        intensities=intensities,
        roof_tflop_per_s=np.minimum(intensities / ridge, 1.0) * matmul,
        ridge=ridge,
        intensity=at,
        achieved_tflop_per_s=found.achieved_flop_per_s / TERA,
        share_pct=100 * found.limit_share,
        bound=found.bound,
    )


def roofline_figure(info: RooflineChart | NoRoof) -> go.Figure:
    """Both axes logarithmic; left of the ridge memory bounds, right of it compute."""
    if isinstance(info, NoRoof):
        return message("No roofline.")
    chart = figure("Arithmetic intensity (FLOP per byte read)", "TFLOP/s")
    chart.add_scatter(
        x=info.intensities,
        y=info.roof_tflop_per_s,
        mode="lines",
        name="measured limits of the device",
        line={"color": INK, "width": 2},
        hovertemplate="limit %{y:.3g} TFLOP/s at %{x:.3g} FLOP/byte<extra></extra>",
    )
    chart.add_scatter(
        x=[info.intensity],
        y=[info.achieved_tflop_per_s],
        mode="markers",
        name=f"verify: {info.share_pct:.0f} % of the {info.bound} limit",
        marker={"size": 13, "color": PALETTE[5]},
        hovertemplate="verify: %{y:.3g} TFLOP/s at %{x:.3g} FLOP/byte<extra></extra>",
    )
    chart.add_vline(x=info.ridge, line={"color": GREY, "dash": "dot", "width": 1.5})
    chart.update_xaxes(type="log")
    chart.update_yaxes(type="log")
    return chart
