"""Long series are thinned without losing a peak or a gap."""

from __future__ import annotations

import numpy as np
import pytest

from profiles.telemetry.thinning import thin, within

NAN = float("nan")


def series(*values: float) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(len(values), dtype=float), np.array(values, dtype=float)


def test_few_samples_are_kept_as_they_are():
    thinned = thin(*series(1, NAN, 3), most=10)
    assert not thinned.is_thinned
    assert thinned.seconds.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(thinned.mean, [1, NAN, 3])


def test_a_silence_is_a_gap():
    seconds = np.array([0, 1, 2, 3, 50, 51.0])
    thinned = thin(seconds, np.ones(6), most=10)
    assert thinned.seconds.tolist() == [0, 1, 2, 3, 3, 50, 51]
    assert np.flatnonzero(np.isnan(thinned.mean)).tolist() == [4]


def test_a_single_peak_and_a_single_dip_of_a_million_samples_survive():
    values = np.full(1_000_000, 50.0)
    values[123_456], values[654_321] = 100.0, 0.0
    thinned = thin(np.arange(len(values)) / 100, values, most=600)
    assert len(thinned.mean) == 600
    assert (thinned.high.max(), thinned.low.min()) == (100.0, 0.0)
    assert (thinned.low.max(), thinned.high.min()) == (50.0, 50.0)
    assert thinned.seconds[int(thinned.high.argmax())] == pytest.approx(1234.56, abs=10)
    assert thinned.mean.mean() == pytest.approx(50, abs=1e-3)


@pytest.mark.parametrize("missing", [1, 500, 100_000])
def test_unmeasured_samples_break_the_line_however_few(missing):
    values = np.full(1_000_000, 50.0)
    values[300_000 : 300_000 + missing] = NAN
    thinned = thin(np.arange(len(values)) / 100, values, most=600)
    gap = np.isnan(thinned.mean)
    assert gap.any() and not gap[:150].any() and not gap[-300:].any()
    assert np.nanmin(thinned.low) == np.nanmax(thinned.high) == 50.0


def test_a_silence_inside_a_long_series_breaks_the_line():
    seconds = np.arange(100_000) / 100
    seconds[50_000:] += 0.5
    thinned = thin(seconds, np.ones(100_000), most=600)
    assert np.isnan(thinned.mean).sum() == 1


def test_other_units_keep_all_three():
    long = thin(np.arange(2000.0), np.arange(2000.0), most=100).scaled(1000)
    assert (long.is_thinned, long.high.max()) == (True, 1.999)
    short = thin(*series(1000, 2000)).scaled(1000)
    assert (short.is_thinned, short.low.tolist()) == (False, [1, 2])


def test_nothing_to_thin():
    assert len(thin(np.zeros(0), np.zeros(0)).mean) == 0


def test_a_window_takes_its_edges():
    seconds = np.array([0, 1, 2, 3.0])
    assert seconds[within(seconds, (1, 2))].tolist() == [1, 2]
