"""Start: ask for a sweep."""

from __future__ import annotations

import streamlit as st

from dashboard.data.sweep_request import SweepRequest
from dashboard.panels.errors import show_bad_input
from dashboard.panels.sweep_form import sweep_form
from dashboard.panels.watch_link import watch_link
from dashboard.panels.workload_preview import choose_workload
from profiles.errors import StorageError
from tuner.errors import BadInput
from tuner.launch import active_run, launch_sweep


def start(request: SweepRequest) -> None:
    """Launch the sweep and go to it, or say what is wrong."""
    try:
        run_id = launch_sweep(request.spec())
    except BadInput as error:
        show_bad_input(error)
    except StorageError as error:
        st.error(str(error))
    else:
        st.switch_page("views/live.py", query_params={"run": run_id})


def page() -> None:
    """Draw the page."""
    st.title("Start a sweep", anchor=False)
    active = active_run()
    if active is not None:
        st.info(
            f"The sweep {active.run_id} is being measured. Only one runs at a time on a host, "
            "because two would slow each other down."
        )
        watch_link(active.run_id)
        return
    st.caption(
        "Which beam width, draft length, batch size and precision serve your prompts best, and by "
        "how much do they beat no speculation? The values below suit a first run: "
        "about 15 minutes on two CPU cores."
    )
    request = sweep_form(choose_workload())
    if request is not None:
        start(request)


page()
