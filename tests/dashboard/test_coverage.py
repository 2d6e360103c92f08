"""How much of a stretch of time intervals cover."""

from __future__ import annotations

import numpy as np

from dashboard.data.coverage import covered_pct


def test_coverage_counts_overlap_once():
    starts, ends = np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0])
    np.testing.assert_allclose(covered_pct(starts, ends, np.array([0, 2, 4, 8.0])), [100, 50, 25])
    np.testing.assert_allclose(covered_pct(starts[:0], ends[:0], np.array([0.0, 1])), [0])


def test_nothing_covers_a_moment():
    starts, ends = np.array([0.0]), np.array([2.0])
    np.testing.assert_array_equal(covered_pct(starts, ends, np.array([1.0, 1.0])), [0])


def test_coverage_of_an_interval_inside_another():
    starts, ends = np.array([0.0, 1.0, 2.0]), np.array([10.0, 2.0, 3.0])
    np.testing.assert_allclose(covered_pct(starts, ends, np.array([0, 5, 10.0])), [100, 100])
