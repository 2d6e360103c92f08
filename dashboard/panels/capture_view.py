"""One imported profile on the page: what it is, its timeline and its kernels."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard.charts.capture_timeline import capture_timeline_figure, capture_timeline_info
from dashboard.charts.show import show
from dashboard.data.capture_times import CaptureTimes, capture_times
from dashboard.data.captures import FORMATS, HASH_LETTERS, ImportedCapture, captures_of
from dashboard.data.kernel_rows import KernelRow, kernel_frame, kernel_rows
from dashboard.data.plain_text import plain
from dashboard.panels.fact_table import fact_table
from profiles.nsight import CaptureSummary
from profiles.store import RunFolder

Version = tuple[str, int]
_NUMBER = st.column_config.NumberColumn
MOST_KERNELS = 500
KERNEL_COLUMNS = {
    "kernel": st.column_config.TextColumn("Kernel", width=260),
    "share_pct": st.column_config.ProgressColumn(
        "Share",
        format="%.1f %%",
        min_value=0,
        max_value=100,
        width="small",
        help="Of the plain sum of all kernel times",
    ),
    "total_ms": _NUMBER("Total (ms)", format="%.3f"),
    "launches": _NUMBER("Launches", format="localized"),
    "mean_us": _NUMBER("Mean (µs)", format="%.2f"),
    "median_us": _NUMBER("Median (µs)", format="%.2f"),
    "min_us": _NUMBER("Min (µs)", format="%.2f"),
    "max_us": _NUMBER("Max (µs)", format="%.2f"),
    "name": st.column_config.TextColumn("Name in full", width="large"),
}


@st.cache_resource(max_entries=8, show_spinner=False)
def times_of(version: Version) -> CaptureTimes:
    """The times in an import, read once. Raises ValueError for a torn table."""
    return capture_times(Path(version[0]))


@st.cache_resource(max_entries=8, show_spinner=False)
def kernels_of(version: Version) -> list[KernelRow]:
    """The kernels of an import, read once. Raises ValueError for a torn table."""
    return kernel_rows(Path(version[0]))


def choose_capture(run: RunFolder, own: str | None = None) -> ImportedCapture | None:
    """Draw the chooser of the run's imports; None without any.

    The address names the import, else `own` does, the hash of the trial's own capture.
    """
    captures = {capture.key: capture for capture in captures_of(run)}
    if not captures:
        st.info("No profile has been imported into this run yet.")
        return None
    wanted = st.query_params.get("profile")
    if wanted is not None and wanted not in captures:
        st.warning(f"The address asks for profile {wanted!r}, which this run does not have.")
    keys = list(captures)
    own_key = (own or "")[:HASH_LETTERS]
    chosen = next(key for key in (wanted, own_key, keys[0]) if key in captures)
    widget = f"choose_profile_{run.run_id}_{chosen}"

    def go() -> None:
        st.query_params["profile"] = st.session_state[widget]

    st.selectbox(
        "Profile",
        keys,
        index=keys.index(chosen),
        format_func=lambda key: captures[key].label,
        key=widget,
        on_change=go,
    )
    return captures[chosen]


def capture_view(capture: ImportedCapture) -> None:
    """Draw the capture, or what is wrong with it."""
    summary = capture.summary
    _headline(summary)
    if summary.state == "empty":
        return
    try:
        times, kernels = times_of(capture.version), kernels_of(capture.version)
    except (ValueError, OSError):
        st.error("The tables of this import are damaged. Import the file again.")
        return
    _timeline(times, capture.key)
    st.markdown("**Kernels**")
    _kernel_table(kernels, summary)
    with st.expander("About this file"):
        fact_table(about(summary), alt="What the file says of itself")


def _headline(summary: CaptureSummary) -> None:
    text = f"**{plain(summary.file_name)}**: {plain(summary.headline)}"
    if summary.state == "complete":
        st.success(text)
    else:
        st.warning(text)
    for note in summary.notes:
        if note.level == "info":
            st.caption(plain(note.text))
        else:
            st.warning(plain(note.text))


def _timeline(times: CaptureTimes, key: str) -> None:
    st.markdown("**Timeline**")
    window = times.worked_ms
    if times.length_ms > 0:
        window = st.slider(
            "Window (ms since the first event)",
            0.0,
            times.length_ms,
            window,
            step=times.length_ms / 10_000,
            format="%.3f",
            key=f"capture_window_{key}",
        )
        if window[0] == window[1]:
            window = (0.0, times.length_ms)
    info = capture_timeline_info(times, window)
    show(
        capture_timeline_figure(info),
        key=f"capture_timeline_{key}",
        alt="GPU work, NVTX ranges and GPU metrics over time",
    )
    if info.lanes:
        st.caption(
            "A lane is the darker the more of that time is filled; in brackets, what falls into "
            "the window."
        )
    if any(curve.series.is_thinned for curve in info.curves):
        st.caption("Each point of a metric is the highest sample of its stretch of time.")


def _kernel_table(kernels: list[KernelRow], summary: CaptureSummary) -> None:
    if not kernels:
        reason = summary.missing.get("kernel_time_ns") or summary.missing.get("kernels")
        st.caption(f"No kernel times: {plain(reason or 'the file lists none')}")
        return
    st.dataframe(
        kernel_frame(kernels[:MOST_KERNELS]),
        hide_index=True,
        column_config=KERNEL_COLUMNS,
        lazy=False,
        alt="Kernels by total time",
    )
    if len(kernels) > MOST_KERNELS:
        st.caption(f"The {MOST_KERNELS} longest of {len(kernels):,} kernels.")


def about(summary: CaptureSummary) -> list[tuple[str, str]]:
    """What the file is and holds; what it does not hold, with the reason."""
    known = [
        ("Format", FORMATS.get(summary.format, summary.format)),
        ("Exported by", summary.tool_version),
        ("Captured by", summary.captured_by),
        ("GPUs", ", ".join(gpu.name or f"GPU {gpu.gpu}" for gpu in summary.gpus)),
        ("CUDA graphs traced by", summary.cuda_graph_mode),
    ]
    facts = [(name, value) for name, value in known if value]
    for busy in summary.gpu_busy or []:
        share = f" ({busy.busy_ns / busy.window_ns:.1%})" if busy.window_ns else ""
        gpu = "GPU" if busy.gpu is None else f"GPU {busy.gpu}"
        facts.append(
            (f"{gpu} busy", f"{busy.busy_ns / 1e6:,.3f} of {busy.window_ns / 1e6:,.3f} ms{share}")
        )
    return facts + [
        (f"No {name.replace('_', ' ')}", reason) for name, reason in summary.missing.items()
    ]
