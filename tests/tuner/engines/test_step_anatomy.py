"""The phases of real steps add up to the time that the requests took."""

from __future__ import annotations

import time

import pytest

from profiles.anatomy import step_anatomy
from profiles.records import TrialConfig
from tuner.engines.base import Request
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.measure import measure


@pytest.mark.parametrize("batch_size", [1, 3])
def test_phases_and_gaps_of_a_trial_are_its_wall_time(tiny_llama, tiny_drafter, batch_size):
    config = TrialConfig(
        model=str(tiny_llama),
        drafter=str(tiny_drafter),
        device="cpu",
        quantization="fp32",
        beam_width=3,
        draft_len=4,
        batch_size=batch_size,
    )
    prompts = [Request(f"r{k}", tuple(range(1, 12 + k)), 40) for k in range(12)]
    began_s = time.perf_counter()
    measured = measure(RedrafterEngine(), config, prompts)
    took_ms = 1e3 * (time.perf_counter() - began_s)
    for side in (measured.trial, measured.baseline):
        found = step_anatomy([(served.steps, served.requests) for served in side])
        assert found.accounted_share == pytest.approx(1, abs=0.02)
        assert sum(p.share for p in found.phases.values()) > 0.5
        assert found.gaps.mean_ms >= 0
        assert found.wall_ms < took_ms
    drafted = step_anatomy([(s.steps, s.requests) for s in measured.trial])
    assert drafted.phases["draft"].mean_ms > 0 and drafted.phases["verify"].mean_ms > 0
