"""A real Streamlit server on a free port, and a Chromium that looks at it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

import dashboard
from profiles.store import RunStore

ROOT = Path(dashboard.__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
PATIENCE_MS = 30_000


@pytest.fixture
def store(tmp_path, monkeypatch) -> RunStore:
    monkeypatch.setenv("TUNER_RUNS_DIR", str(tmp_path / "runs"))
    return RunStore(tmp_path / "runs")


@pytest.fixture
def server(store) -> Iterator[str]:
    """The address of the dashboard; its process is gone after the test."""
    port = str(_free_port())
    process = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", "dashboard/app.py", "--server.port", port],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            lines = list(_until_it_answers(process.stdout))
            assert process.poll() is None, "".join(lines)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(10)  # NOTE: with its pipe closed too early it never ends
            except subprocess.TimeoutExpired:
                process.kill()


def _until_it_answers(output: TextIO) -> Iterator[str]:
    """Yield what the server says until it names its address, or ends."""
    for line in output:
        yield line
        if "URL:" in line:
            return


@pytest.fixture
def page(server) -> Iterator[object]:
    """An empty tab, as wide as a laptop's screen."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this host")
    sync_api.expect.set_options(timeout=PATIENCE_MS)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        tab = browser.new_page(viewport={"width": 1440, "height": 900}, base_url=server)
        tab.set_default_timeout(PATIENCE_MS)
        yield tab
        browser.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
