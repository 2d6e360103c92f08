"""Counters while a trial served, as they are kept and as they are tallied when they were not."""

from __future__ import annotations

import pytest

from profiles.records import StepRecord
from profiles.served_telemetry import served_telemetry, write_served_telemetry
from profiles.telemetry.parts import PartWriter
from profiles.trial_folder import TrialFolder


@pytest.fixture
def trial(tmp_path):
    """Two steps of 2 s, with 2 s between them in which the baseline ran; samples at 1 Hz."""
    folder = TrialFolder(tmp_path, 0)
    folder.write_steps(
        [
            StepRecord(
                index, start_s, draft_ms=500.0, verify_ms=1500.0, accept_ms=0.0, host_ms=0.0,
                request_ids=["a"], tree_nodes=[1], accepted=[0], committed=[1],
            )
            for index, start_s in enumerate((10.0, 14.0))
        ]
    )  # fmt: skip
    folder.telemetry_dir.mkdir()
    PartWriter(folder.telemetry_dir).write(
        [
            {
                "t_s": 9.5 + second, "unix_s": 0.0, "source": "GPU-1",
                "dram_active_pct": 10.0 * second,
                "tensor_active_pct": None if second == 1 else 1.0 * second,
                "throttle_reasons": 4 if second in (1, 3) else 0,
            }
            for second in range(8)
        ]
    )  # fmt: skip
    return folder


def test_only_samples_during_steps_count(trial):
    served = served_telemetry(trial, trial.steps())
    (dram,) = served.of("dram_active_pct")
    assert (dram.source, dram.samples, dram.means) == ("GPU-1", 4, {"dram_active_pct": 35.0})
    (held,) = served.of("throttle_reasons")
    assert held.counts == {"throttle_reasons": {0: 3, 4: 1}}
    (both,) = served.of("dram_active_pct", "tensor_active_pct")
    assert both.samples == 3 and both.means["dram_active_pct"] == pytest.approx(130 / 3)
    assert served.of("sm_active_pct") == [] and served.sources == ["GPU-1"]


def test_the_record_spares_reading_the_samples(trial):
    before = served_telemetry(trial, trial.steps())
    write_served_telemetry(trial)
    (trial.telemetry_dir / "part-000000.parquet").unlink()
    assert served_telemetry(trial, trial.steps()) == before


def test_without_steps_nothing_was_served(trial):
    served = served_telemetry(trial, trial.steps()[:0])
    assert (served.sources, served.tallies) == (["GPU-1"], [])
