"""The telemetry of finished trials, read once for all tabs."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard.data.telemetry_samples import Identity, TelemetrySamples, identity, load


def loaded_telemetry(folder: Path) -> TelemetrySamples:
    """Read a telemetry folder, or find it read; a folder that has changed is read again."""
    return _loaded(identity(folder))


@st.cache_resource(max_entries=4, show_spinner=False)
def _loaded(of: Identity) -> TelemetrySamples:
    return load(Path(of[0]))
