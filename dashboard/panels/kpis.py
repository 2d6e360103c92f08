"""The headline numbers of the best trial."""

from __future__ import annotations

import streamlit as st

from dashboard.data.headline import headline_tiles
from profiles.records import TrialResult


def kpis(result: TrialResult) -> None:
    """Draw one tile a number, in as many rows as the window needs."""
    tiles = headline_tiles(result)
    grid = st.grid(len(tiles))
    for tile in tiles:
        grid.metric(
            tile.label,
            tile.value,
            delta=tile.beside,
            delta_color="off",
            delta_arrow="off",
            help=tile.explained,
            border=True,
            height="stretch",
        )
