"""Start a sweep, watch it, stop it, leave with its config: in a real browser and server."""

from __future__ import annotations

import os
import re
import signal

import pytest
import yaml

from profiles.store import RunFolder

pytestmark = pytest.mark.browser


@pytest.fixture
def sweeps(store):
    """Whatever sweep the test leaves running is ended after it."""
    yield store
    for run in store.list():
        if run.is_alive():
            os.kill(run.status().pid, signal.SIGTERM)


@pytest.fixture
def foreign_requests(page):
    """What the browser asked of any other host."""
    asked = []

    def note(request):
        if not request.url.startswith(("http://127.0.0.1", "data:", "blob:")):
            asked.append(request.url)

    page.on("request", note)
    return asked


def test_start_watch_stop_export(page, sweeps, foreign_requests, tmp_path):
    from playwright.sync_api import expect

    page.goto("/")
    page.get_by_role("combobox", name="Engine").click()
    page.get_by_role("option", name="fake").click()
    page.get_by_role("button", name="Start sweep").click()

    expect(page.get_by_text("fake engine")).to_be_visible()
    (run,) = sweeps.list()
    assert f"run={run.run_id}" in page.url
    _first_row(page, expect)

    page.get_by_role("button", name="Stop sweep").click()
    expect(page.get_by_text("Stopped", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Resume sweep")).to_be_enabled()
    assert run.observed_state() == "stopped"

    page.get_by_role("link", name="Export").click()
    path = _download(page, tmp_path)
    _holds_a_measured_config(path, run)
    assert foreign_requests == []


def _first_row(page, expect):
    """The table is drawn on a canvas; its cells are there for screen readers."""
    cells = page.get_by_test_id("stDataFrame").locator("canvas td")
    expect(cells.filter(has_text="complete").first).to_be_attached()


def _download(page, folder):
    with page.expect_download() as started:
        page.get_by_role("button", name=re.compile(r"Download .*\.yaml")).click()
    path = folder / started.value.suggested_filename
    started.value.save_as(path)
    return path


def _holds_a_measured_config(path, run: RunFolder):
    document = yaml.safe_load(path.read_text())
    result = run.trial(document["evidence"]["trial"]).result()
    measured = {"quantization": result.precision}  # what ran, not "the host's default"
    assert document["config"] == result.config.model_dump(mode="json") | measured
    assert document["workload"] == result.workload.model_dump(mode="json")
    measured = document["evidence"]["measured"]
    assert measured["output_tokens_per_s"] == result.metrics.output_tokens_per_s
