"""How long the Trial page takes to open: `python -m tests.bench.trial_page [--help]`.

Makes a run with two trials, one with a long telemetry and one with a short, serves the dashboard
and opens both in Chromium. Prints the time until a section is drawn: on a first visit, where the
browser has nothing cached and loads the whole frontend too; in another tab of a browser that has
been there before; and on a click on the Results page. Every figure has its own server and browser.
What the short trial takes is the floor of the page itself, and what an app of one line takes
(`--floor`) is the floor of Streamlit and Plotly.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from playwright.sync_api import Page, sync_playwright

from profiles.records import StepRecord
from profiles.served_telemetry import write_served_telemetry
from profiles.store import RunFolder, RunStore
from profiles.tables import write_table
from profiles.telemetry.columns import GPU_NAMES, HOST, HOST_NAMES
from profiles.telemetry.merge import merge_parts
from profiles.telemetry.parts import SCHEMA, part_paths
from tests.browser.serving import CHROMIUM, CHROMIUM_ARGUMENTS, serving
from tests.dashboard.hand_made import baseline, make_run, trial

START_S = 1000.0
LONG, SHORT = 1, 2
PATIENCE_MS = 60_000  # a busy host is slow, and the figures say so


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--hz", type=float, default=100.0)
    parser.add_argument("--flush-s", type=float, default=5.0, help="of samples in one file")
    parser.add_argument("--unmerged", action="store_true", help="as a killed trial leaves them")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="make the runs here and leave them")
    parser.add_argument("--floor", action="store_true", help="only open apps of one line")
    options = parser.parse_args()
    with ExitStack() as stack:
        root = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if options.floor:
            for name, line in ONE_LINERS.items():
                report("none", "address", name, [floor(root, line) for _ in range(options.repeats)])
            return
        run = make_long_run(RunStore(root), options)
        if options.keep:
            print(f"runs in {root}")
            return
        parts = len(part_paths(run.trial(LONG).telemetry_dir))
        print(f"{options.rows:,} rows in {parts} file(s), {options.gpus} GPUs at {options.hz:g} Hz")
        print("trial   opened by     section    median s   all")
        for number, name in ((LONG, "long"), (SHORT, "short")):
            for how, opened in WAYS.items():
                for section in ("Timeline", "Overview"):
                    took = [
                        measure(root, run, number, section, opened) for _ in range(options.repeats)
                    ]
                    report(name, how, section, took)


def report(trial: str, how: str, section: str, took: list[float]) -> None:
    each = ", ".join(f"{seconds:.2f}" for seconds in took)
    print(f"{trial:<7} {how:<13} {section:<10} {statistics.median(took):<10.2f} {each}", flush=True)


def make_long_run(store: RunStore, options: argparse.Namespace) -> RunFolder:
    """A run whose trial `LONG` has `options.rows` rows of telemetry, and `SHORT` a hundredth."""
    run = make_run(store, baseline(0), trial(LONG), trial(SHORT, ratio=1.2))
    for number, rows in ((LONG, options.rows), (SHORT, options.rows // 100)):
        folder = run.trial(number).telemetry_dir
        folder.mkdir(parents=True)
        table = telemetry(rows, options.gpus, options.hz)
        size = round((options.gpus + 1) * options.hz * options.flush_s)
        for part, first in enumerate(range(0, len(table), size)):
            write_table(folder / f"part-{part:06d}.parquet", table.slice(first, size))
        if not options.unmerged:
            merge_parts(folder)
        run.trial(number).write_steps(steps(rows / (options.gpus + 1) / options.hz))
        if not options.unmerged:
            write_served_telemetry(run.trial(number))
    return run


def telemetry(rows: int, gpus: int, hz: float) -> pa.Table:
    """Samples that look like a trial: rounds of work, noise, a lost stretch, a power cap."""
    sources = [HOST, *(f"GPU-{number:08d}" for number in range(gpus))]
    ticks = rows // len(sources)
    seconds = np.arange(ticks) / hz
    rng = np.random.default_rng(0)
    serving_now = (seconds % 20) < 10
    level = np.repeat(np.where(serving_now, 70.0, 8.0), len(sources))
    activity = np.clip(level + rng.normal(0, 8, len(level)), 0, 100)
    lost = np.repeat((seconds > 0.4 * ticks / hz) & (seconds < 0.42 * ticks / hz), len(sources))
    source = np.tile(sources, ticks)
    scale = {
        "tensor_active_pct": 0.4,
        "dram_active_pct": 0.8,
        "memory_used_bytes": 1e9,
        "host_memory_used_bytes": 1e9,
        "power_mw": 7e3,
        "sm_clock_mhz": 19.8,
        "energy_mj": 1e6,
    }
    columns: dict[str, pa.Array] = {
        "t_s": pa.array(START_S + np.repeat(seconds, len(sources))),
        "unix_s": pa.array(1.8e9 + np.repeat(seconds, len(sources))),
        "source": pa.array(source),
    }
    for names, mine in ((HOST_NAMES, source == HOST), (GPU_NAMES, source != HOST)):
        for name in names:
            values = activity * scale.get(name, 1.0)
            if name == "throttle_reasons":
                values = np.where(activity > 85, 4, 0)
            kind = SCHEMA.field(name).type
            columns[name] = pa.array(values.astype(kind.to_pandas_dtype()), mask=~mine | lost)
    return pa.table(columns, schema=SCHEMA)


def steps(length_s: float) -> list[StepRecord]:
    """Steps of 20 ms in the first half of every 20 seconds."""
    starts = [s for s in np.arange(0, length_s, 0.02) if s % 20 < 10]
    return [
        StepRecord(
            index, START_S + float(start), draft_ms=4.0, verify_ms=11.0, accept_ms=1.0, host_ms=2.0,
            tree_ms=1.0, request_ids=["a"], tree_nodes=[5], accepted=[1], committed=[2],
            prefill_ms=1.0,
        )
        for index, start in enumerate(starts)
    ]  # fmt: skip


Opened = Callable[[Page, str, str], float]


def measure(root: Path, run: RunFolder, number: int, section: str, opened: Opened) -> float:
    """Seconds until the section is drawn, in a new server and a new browser."""
    query = f"run={run.run_id}&trial={number}&section={section}"
    with serving(root) as address, browser_tab(address) as tab:
        return opened(tab, query, section)


@contextmanager
def browser_tab(address: str):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        context = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=address)
        tab = context.new_page()
        tab.set_default_timeout(PATIENCE_MS)
        yield tab
        browser.close()


def by_address(tab: Page, query: str, section: str) -> float:
    """Open the address in an empty tab."""
    begun = time.perf_counter()
    tab.goto(f"/trial?{query}")
    wait_until_drawn(tab, section)
    return time.perf_counter() - begun


def by_address_again(tab: Page, query: str, section: str) -> float:
    """Open the address in a second tab."""
    by_address(tab, query, section)
    second = tab.context.new_page()
    second.set_default_timeout(PATIENCE_MS)
    return by_address(second, query, section)


def by_click(tab: Page, query: str, section: str) -> float:
    """Follow a link of the Results page, which is drawn before, to the section."""
    tab.goto(f"/results?{query}")
    link = tab.get_by_role("link", name="Timeline of" if section == "Timeline" else "Open trial")
    link.wait_for()
    tab.wait_for_load_state("networkidle")
    begun = time.perf_counter()
    link.click()
    wait_until_drawn(tab, section)
    return time.perf_counter() - begun


def wait_until_drawn(tab: Page, section: str) -> None:
    """Wait for the last thing that the section draws."""
    if section == "Timeline":
        tab.locator(".js-plotly-plot .legendtext", has_text="SM active").wait_for()
        tab.get_by_text("White in the phases").wait_for()
    else:
        tab.get_by_text("Measured", exact=True).wait_for()


WAYS = {"address": by_address, "address again": by_address_again, "click": by_click}
ONE_LINERS = {
    "text": "import streamlit as st; st.text('drawn')",
    "chart": "import streamlit as st; st.plotly_chart({'data': [{'y': [1, 2]}]})",
}


def floor(root: Path, line: str) -> float:
    """Seconds until an app of one line is drawn on a first visit."""
    app = root / "one_line.py"
    app.write_text(line)
    with serving(root, ("streamlit", "run", str(app))) as address, browser_tab(address) as tab:
        begun = time.perf_counter()
        tab.goto("/")
        tab.get_by_text("drawn").or_(tab.locator(".js-plotly-plot .scatterlayer")).wait_for()
        return time.perf_counter() - begun


if __name__ == "__main__":
    main()
