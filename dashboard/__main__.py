"""Serve the dashboard: `python -m dashboard [OPTIONS OF streamlit run]`.

Streamlit runs a page's code, imports included, when the first browser asks for it. Whatever the
pages need is imported here, before the server says that it is ready, so that nobody waits for it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

from streamlit.web.cli import main

import dashboard.panels


def import_panels() -> None:
    """Import every panel, and with them all that the pages draw with."""
    for module in pkgutil.iter_modules(dashboard.panels.__path__, "dashboard.panels."):
        importlib.import_module(module.name)


if __name__ == "__main__":
    import_panels()
    app = Path(__file__).with_name("app.py")
    main(["run", str(app), *sys.argv[1:]], prog_name="streamlit")
