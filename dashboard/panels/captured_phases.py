"""What a profiler saw of a trial that ran under it."""

from __future__ import annotations

import streamlit as st

from dashboard.data.captured_rows import captured_frame, captured_rows
from dashboard.data.plain_text import plain
from profiles.trial_capture import TrialCapture

_NUMBER = st.column_config.NumberColumn
COLUMNS = {
    "phase": st.column_config.TextColumn("Phase"),
    "host_ms": _NUMBER("Host (ms)", format="%.3f", help="The engine's thread, waits included"),
    "gpu_busy_ms": _NUMBER("GPU busy (ms)", format="%.3f", help="Overlap counts once"),
    "kernel_ms": _NUMBER("Kernels (ms)", format="%.3f", help="Plain sum"),
    "kernels": _NUMBER("Kernels", format="localized"),
    "launches": _NUMBER("Launches", format="localized"),
    "graphs": _NUMBER("Whole CUDA graphs", format="localized"),
    "gap_before_ms": _NUMBER("GPU idle before (ms)", format="%.3f"),
}


def captured_phases(capture: TrialCapture) -> None:
    """Draw the phases of the captured steps and what the capture cannot tell."""
    found = capture.anatomy
    st.markdown(f"**Phases under {plain(capture.profiler)}, {capture.window.steps} steps**")
    st.dataframe(
        captured_frame(captured_rows(found)),
        hide_index=True,
        placeholder="n/a",
        column_config=COLUMNS,
        height="content",
        alt="Host and GPU time of each phase",
    )
    st.caption(plain(found.graphs_note))
    if found.gaps:
        gaps = found.gaps
        st.caption(
            f"Of {gaps.window_ns / 1e6:,.3f} ms the GPU was idle {gaps.idle_ns / 1e6:,.3f} ms; "
            f"the longest gap was {gaps.longest_gap_ns / 1e6:,.3f} ms."
        )
    for name, reason in found.missing.items():
        st.caption(f"No {plain(name)}: {plain(reason)}")
    for check in capture.activity:
        seen = (
            f"Nsight {check.nsight_pct:.1f} %, GPM {check.gpm_pct:.1f} % "
            f"over {check.windows} windows"
            if check.nsight_pct is not None and check.gpm_pct is not None
            else f"not compared ({check.reason})"
        )
        st.caption(f"{plain(check.metric.removesuffix('_pct').replace('_', ' '))}: {plain(seen)}")
