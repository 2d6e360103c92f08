"""A server over an empty store, and a Chromium that looks at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from profiles.store import RunStore
from tests.browser.serving import CHROMIUM, CHROMIUM_ARGUMENTS, serving

PATIENCE_MS = 90_000


@pytest.fixture
def store(tmp_path, monkeypatch) -> RunStore:
    monkeypatch.setenv("TUNER_RUNS_DIR", str(tmp_path / "runs"))
    return RunStore(tmp_path / "runs")


@pytest.fixture
def server(store) -> Iterator[str]:
    """The address of the dashboard; its process is gone after the test."""
    with serving(store.root) as address:
        yield address


@pytest.fixture
def page(server) -> Iterator[object]:
    """An empty tab, as wide as a laptop's screen."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this host")
    sync_api.expect.set_options(timeout=PATIENCE_MS)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        tab = browser.new_page(viewport={"width": 1440, "height": 900}, base_url=server)
        tab.set_default_timeout(PATIENCE_MS)
        yield tab
        browser.close()
