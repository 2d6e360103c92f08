"""The telemetry of trials thinned for the screen, read once for all tabs."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from profiles.telemetry.overview import Overview, read_overview

Identity = tuple[str, int, int, int]


def loaded_overview(folder: Path) -> Overview:
    """Read a telemetry folder, or find it read; a folder that has changed is read again."""
    return _loaded(identity(folder))


def identity(folder: Path) -> Identity:
    """Changes whenever a sampler writes: folder, files, bytes and newest change."""
    stats = [path.stat() for path in folder.glob("*.parquet")]
    newest = max((stat.st_mtime_ns for stat in stats), default=0)
    return str(folder), len(stats), sum(stat.st_size for stat in stats), newest


@st.cache_resource(max_entries=8, show_spinner=False)
def _loaded(of: Identity) -> Overview:
    return read_overview(Path(of[0]))
