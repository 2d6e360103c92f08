from __future__ import annotations

import pytest

from profiles.records import TrialConfig
from tests.tuner.engines.contract import EngineContract
from tuner.engines.fake import FakeEngine


class TestFake(EngineContract):
    @pytest.fixture
    def engine(self):
        return FakeEngine()

    def config(self, **knobs):
        return TrialConfig(engine="fake", model="fake", **knobs)
