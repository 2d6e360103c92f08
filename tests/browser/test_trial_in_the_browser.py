"""Open a trial by its row, look at its timeline, import a profile: in a real browser and server."""

from __future__ import annotations

import pytest

from profiles.telemetry.parts import PartWriter
from tests.dashboard.hand_made import baseline, make_run, trial
from tests.dashboard.small_profile import small_profile

pytestmark = pytest.mark.browser


@pytest.fixture
def run(store):
    run = make_run(store, baseline(0), trial(1))
    folder = run.trial(1).telemetry_dir
    folder.mkdir()
    PartWriter(folder).write(
        [
            {"t_s": n / 10, "unix_s": 0.0, "source": "GPU-1", "sm_active_pct": float(n % 50)}
            for n in range(100)
        ]
    )
    return run


def test_a_trial_opens_from_results_and_shows_its_telemetry(page, run):
    from playwright.sync_api import expect

    page.goto(f"/results?run={run.run_id}&trial=1")
    page.get_by_role("link", name="Open trial 1").click()
    expect(page.get_by_role("heading", name="Trial", exact=True)).to_be_visible()
    assert f"run={run.run_id}" in page.url and "trial=1" in page.url
    page.get_by_role("tab", name="Timeline").click()
    expect(_drawn(page, "GPU activity (%)")).to_be_visible()
    expect(page.get_by_text("Not measured: tensor active, DRAM active")).to_be_visible()
    assert "section=Timeline" in page.url


def test_an_uploaded_profile_shows_its_timeline_and_kernels(page, run, tmp_path):
    from playwright.sync_api import expect

    page.goto(f"/trial?run={run.run_id}&trial=1&section=Profiles")
    _upload(page, small_profile(tmp_path / "small.sqlite"))
    expect(page.get_by_text("3 kernels, 1 copies, 2 NVTX ranges")).to_be_visible()
    expect(_drawn(page, "GPU 0 kernels (3)")).to_be_visible()
    expect(_drawn(page, "range verify (1)")).to_be_visible()
    cells = page.get_by_test_id("stDataFrame").locator("canvas td")
    expect(cells.filter(has_text="gemm_64x64").first).to_be_attached()


def test_a_damaged_profile_gives_its_message(page, run, tmp_path):
    from playwright.sync_api import expect

    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(small_profile(tmp_path / "small.sqlite").read_bytes()[:5000])
    page.goto(f"/trial?run={run.run_id}&trial=1&section=Profiles")
    _upload(page, damaged)
    expect(page.get_by_text("was not imported")).to_be_visible()
    expect(page.get_by_text("No profile has been imported")).to_be_visible()
    assert not (run.path / "imports").exists()


def _upload(page, path):
    page.locator("input[type=file]").set_input_files(path)
    page.get_by_text(path.name).wait_for()
    page.get_by_role("button", name="Import", exact=False).last.click()


def _drawn(page, text):
    """A text of a chart."""
    return page.locator(".js-plotly-plot text", has_text=text).first
