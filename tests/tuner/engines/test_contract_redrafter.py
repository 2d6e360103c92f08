from __future__ import annotations

import pytest

from profiles.records import TrialConfig
from tests.tuner.engines.contract import EngineContract
from tuner.engines.redrafter.engine import RedrafterEngine


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
class TestRedrafter(EngineContract):
    @pytest.fixture(autouse=True)
    def _models(self, tiny_llama, tiny_drafter, device):
        self.model, self.drafter, self.device = str(tiny_llama), str(tiny_drafter), device

    @pytest.fixture
    def engine(self):
        engine = RedrafterEngine()
        yield engine
        engine.close()

    def config(self, **knobs):
        fixed = {"model": self.model, "drafter": self.drafter, "device": self.device}
        return TrialConfig(**{"quantization": "fp32", **fixed, **knobs})
