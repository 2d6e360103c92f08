"""What a merged folder's overview says is what its samples say."""

from __future__ import annotations

import numpy as np
import pytest

from profiles.telemetry.merge import merge_parts
from profiles.telemetry.overview import SHOWN, overview_of, read_overview, zoomed
from profiles.telemetry.parts import PartWriter
from profiles.telemetry.samples import read_samples

GPU, OTHER = "GPU-1", "GPU-2"
TICKS = 2000


@pytest.fixture
def folder(tmp_path):
    """A peak, unmeasured samples, a power cap in one stretch, a GPU that is sampled briefly."""
    writer = PartWriter(tmp_path)
    for first in range(0, TICKS, 500):
        rows = []
        for tick in range(first, first + 500):
            at = {"t_s": 50 + tick / 100, "unix_s": 0.0}
            busy = None if 900 <= tick < 910 else 99.0 if tick == 777 else 40.0 + tick % 7
            held = 4 if 1000 <= tick < 1200 else 0
            rows += [
                {**at, "source": "host", "host_cpu_pct": tick % 100 / 2},
                {**at, "source": GPU, "sm_active_pct": busy, "throttle_reasons": held},
            ]
            if tick < 20:
                rows.append({**at, "source": OTHER, "power_mw": 1000 * tick, "throttle_reasons": 0})
        writer.write(rows)
    return tmp_path


def assert_same(one, other):
    assert one.spans_s == other.spans_s
    assert {s: list(c) for s, c in one.curves.items()} == {
        s: list(c) for s, c in other.curves.items()
    }
    for source, curves in one.curves.items():
        for column, series in curves.items():
            twin = other.curves[source][column]
            assert series.is_thinned == twin.is_thinned
            for name in ("seconds", "low", "mean", "high"):
                np.testing.assert_array_equal(getattr(series, name), getattr(twin, name))
    assert one.held.keys() == other.held.keys()
    for source, held in one.held.items():
        np.testing.assert_array_equal(held.edges_s, other.held[source].edges_s)
        assert held.percents.keys() == other.held[source].percents.keys()
        for reason, percents in held.percents.items():
            np.testing.assert_array_equal(percents, other.held[source].percents[reason])


def test_the_file_holds_what_is_thinned_from_the_parts(folder):
    thinned = read_overview(folder)
    merge_parts(folder)
    (folder / "merged-000003.parquet").write_bytes(b"not looked at")
    assert_same(read_overview(folder), thinned)


def test_peak_gap_and_power_cap_survive(folder):
    merge_parts(folder)
    overview = read_overview(folder)
    busy = overview.curves[GPU]["sm_active_pct"]
    assert busy.is_thinned and np.nanmax(busy.high) == 99.0
    assert np.isnan(busy.mean[np.abs(busy.seconds - 59.05) < 0.06]).any()
    capped = overview.held[GPU].percents["power cap"]
    edges = overview.held[GPU].edges_s
    assert (capped * np.diff(edges)).sum() / 100 == pytest.approx(2.0, abs=0.02)
    assert overview.held[OTHER].percents == {}
    assert list(overview.curves[OTHER]) == ["power_mw"]


def test_samples_that_came_after_the_merge_count(folder):
    merge_parts(folder)
    PartWriter(folder).write([{"t_s": 99.0, "unix_s": 0.0, "source": "host", "host_cpu_pct": 1.0}])
    assert read_overview(folder).span_s == (50.0, 99.0)


def test_a_torn_overview_is_made_anew(folder):
    merge_parts(folder)
    whole = read_overview(folder)
    (folder / "overview-000003.parquet").write_bytes(b"PAR1 torn")
    assert_same(read_overview(folder), whole)


def test_a_window_shows_every_sample(folder):
    merge_parts(folder)
    near = zoomed(folder, read_overview(folder), GPU, (57.5, 58.5))
    busy = near.curves[GPU]["sm_active_pct"]
    assert not busy.is_thinned and len(busy.mean) == 101
    assert busy.mean[27] == 99.0
    assert near.held[GPU].percents == {}
    assert near.span_s == (50.0, 69.99) and OTHER not in near.curves


def test_no_samples(tmp_path):
    assert overview_of(read_samples(tmp_path, SHOWN)).span_s is None
    assert read_overview(tmp_path).gpus == []
