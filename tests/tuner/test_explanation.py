from __future__ import annotations

import pytest

from profiles.records import TrialConfig
from tests.tuner.test_measure import CONFIG, requests
from tuner.engines.fake import FakeEngine
from tuner.explanation import explanation
from tuner.measure import measure, metrics_of


def test_both_sides_are_taken_apart_and_add_up():
    measured = measure(FakeEngine(), CONFIG, requests())
    fields = explanation(CONFIG, measured)
    for side, anatomy in (
        (measured.trial, fields["anatomy"]),
        (measured.baseline, fields["baseline_anatomy"]),
    ):
        assert anatomy.steps == sum(len(served.steps) for served in side)
        assert anatomy.accounted_share == pytest.approx(1)
    duration_s = metrics_of(measured.trial, CONFIG).duration_s
    assert fields["anatomy"].wall_ms == pytest.approx(1e3 * duration_s)
    assert fields["anatomy"].phases["draft"].mean_ms > 0
    assert fields["baseline_anatomy"].phases["draft"].mean_ms == 0


def test_an_engine_without_a_model_gets_no_shape_and_measures_no_device():
    fields = explanation(CONFIG, measure(FakeEngine(), CONFIG, requests(4)))
    assert "shape" not in fields and "limits" not in fields


def test_a_baseline_has_one_side():
    alone: TrialConfig = CONFIG.baseline()
    fields = explanation(alone, measure(FakeEngine(), alone, requests(4)))
    assert fields["baseline_anatomy"] is None
    assert fields["anatomy"].phases["verify"].share > 0.5
