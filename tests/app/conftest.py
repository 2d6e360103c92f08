"""A store in a temporary folder and a page of the app that reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import dashboard
from profiles.store import RunStore

APP = Path(dashboard.__file__).parent / "app.py"
SECONDS = 30


@pytest.fixture
def store(tmp_path, monkeypatch) -> RunStore:
    monkeypatch.setenv("TUNER_RUNS_DIR", str(tmp_path))
    return RunStore(tmp_path)


@pytest.fixture
def new_page(store) -> Callable[[str], AppTest]:
    """A page by its name, not run yet."""

    def new_page(name: str) -> AppTest:
        at = AppTest.from_file(str(APP), default_timeout=SECONDS)
        at.switch_page(f"views/{name}.py")
        return at

    return new_page


@pytest.fixture
def open_page(new_page) -> Callable[..., AppTest]:
    """Open a page by its name and query; it must not raise."""

    def open_page(name: str, **query: str) -> AppTest:
        at = new_page(name)
        for key, value in query.items():
            at.query_params[key] = value
        at.run()
        assert not at.exception, at.exception
        return at

    return open_page
