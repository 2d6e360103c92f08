"""What a trial's record says of the memory that was predicted for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiles.records import MemorySplit, TrialConfig, TrialState, WorkloadSpec
from profiles.trial_folder import TrialFolder
from tuner.engines.fake import FakeEngine
from tuner.errors import OutOfMemory
from tuner.trial import headline, run_trial

PREDICTED = MemorySplit(
    weights_bytes=7, drafter_bytes=5, kv_bytes=3, rest_bytes=None, peak_bytes=None, reason="why"
)


class Foreseeing(FakeEngine):
    """The fake engine, telling what it will hold."""

    def prepare(self, config, max_seq_len, on_progress=None):
        prepared = super().prepare(config, max_seq_len, on_progress)
        return replace(prepared, memory_predicted=PREDICTED)


class Refusing(FakeEngine):
    """The fake engine on a device that is too small."""

    def prepare(self, config, max_seq_len, on_progress=None):
        raise OutOfMemory("batch_size = 4 needs more", PREDICTED)


@pytest.mark.parametrize(
    ("engine", "state"),
    [(Foreseeing(), TrialState.COMPLETE), (Refusing(), TrialState.INFEASIBLE)],
)
def test_the_prediction_is_recorded_whether_or_not_it_fits(tmp_path, engine, state):
    folder = TrialFolder(tmp_path, 0)
    spec = WorkloadSpec(requests=2, max_new_tokens=4)
    result = run_trial(folder, TrialConfig(engine="fake", model="fake"), spec, engine)
    assert result.state == state
    assert result.memory_predicted == PREDICTED
    assert (result.memory is None) == (state == TrialState.INFEASIBLE)
    assert headline(result)["memory_predicted"] == PREDICTED.model_dump()
    assert folder.result() == result
