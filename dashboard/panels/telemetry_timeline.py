"""The telemetry of a trial on the page, with the window and the GPU that one looks at."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from dashboard.charts.show import show
from dashboard.charts.telemetry import Timeline, timeline_figure, timeline_info
from dashboard.data.phase_shares import PhaseShares, phase_shares
from dashboard.data.plain_text import plain
from dashboard.panels.loaded_telemetry import loaded_overview
from profiles.telemetry.columns import HOST
from profiles.telemetry.overview import SHOWN, Overview, overview_of, zoomed
from profiles.telemetry.parts import read_reasons
from profiles.telemetry.samples import read_samples
from profiles.trial_folder import TrialFolder

_ALT = "Activity, memory, power and clocks of GPU and host over the trial"


def newest_telemetry(folder: Path) -> None:
    """Draw what a trial in progress has recorded so far."""
    samples = read_samples(folder, SHOWN)
    gpu = min(samples.keys() - {HOST}, default=None)
    overview = overview_of({name: of for name, of in samples.items() if name in (HOST, gpu)})
    info = timeline_info(overview, gpu, read_reasons(folder))
    show(timeline_figure(info), key="telemetry", alt=_ALT)


def telemetry_timeline(trial: TrialFolder) -> None:
    """Draw the whole trial or the window chosen of it."""
    folder = trial.telemetry_dir
    overview = loaded_overview(folder)
    span = overview.span_s
    if span is None:
        st.info(f"No telemetry was recorded for trial {trial.number}.")
        return
    key = f"{trial.path}"
    gpu = _choose_gpu(overview, key)
    window = _choose_window(span, key)
    phases = _phases(trial.step_times(), window)
    if window != span:
        overview = zoomed(folder, overview, gpu, window)
    info = timeline_info(overview, gpu, read_reasons(folder), phases, window)
    show(timeline_figure(info), key="telemetry", alt=_ALT)
    _explain(info)


def _choose_gpu(overview: Overview, key: str) -> str | None:
    if len(overview.gpus) < 2:
        return overview.gpus[0] if overview.gpus else None
    return st.selectbox("GPU", overview.gpus, key=f"gpu_{key}")


def _choose_window(span: tuple[float, float], key: str) -> tuple[float, float]:
    length = span[1] - span[0]
    if length <= 0:
        return span
    first, last = st.slider(
        "Window (seconds since the trial's first sample)",
        0.0,
        length,
        (0.0, length),
        step=max(length / 1000, 0.001),
        format="%.3f" if length < 10 else "%.1f",
        key=f"window_{key}",
        help="A shorter window shows more detail: every sample, and the phases of single steps.",
    )
    if last <= first or (first, last) == (0.0, length):
        return span
    return span[0] + first, span[0] + last


def _phases(steps: pd.DataFrame, window: tuple[float, float]) -> PhaseShares | None:
    return None if steps.empty else phase_shares(steps, window)


def _explain(info: Timeline) -> None:
    notes = []
    if any(curve.series.is_thinned for curve in info.curves):
        notes.append("Lines are means; the bands around them reach from lowest to highest sample.")
    if info.phases:
        notes.append("White in the phases is time outside this config's steps: loading, baseline.")
    else:
        notes.append("No phases: the trial's steps were not recorded.")
    if info.held and not info.held.percents:
        notes.append("No throttling was seen.")
    st.caption(" ".join(notes))
    if info.missing:
        reasons: dict[str, list[str]] = {}
        for title, reason in info.missing.items():
            reasons.setdefault(reason, []).append(title)
        for reason, titles in reasons.items():
            st.caption(f"Not measured: {', '.join(titles)} ({plain(reason)})")
