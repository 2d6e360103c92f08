"""The router: `python -m dashboard` runs it from the top of the checkout."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

ICON = str(Path(__file__).parent / "icon.svg")  # NOTE: a :material: icon is fetched from afar
# NOTE: Streamlit's own status shows a Stop button that ends the page's script, not the sweep.
STYLE = """<style>
[data-testid=stMainBlockContainer] {padding: 4.5rem 3rem 2rem}
[data-testid=stStatusWidget] {display: none}
</style>"""

st.set_page_config(page_title="ReDrafter tuner", page_icon=ICON, layout="wide")
st.html(STYLE)
page = st.navigation(
    [
        st.Page("views/start.py", title="Start", icon=":material/play_arrow:", default=True),
        st.Page("views/live.py", title="Live", icon=":material/monitoring:"),
        st.Page("views/results.py", title="Results", icon=":material/insights:"),
        st.Page("views/trial.py", title="Trial", icon=":material/science:"),
        st.Page("views/export.py", title="Export", icon=":material/download:"),
    ],
    position="top",
)
page.run()
