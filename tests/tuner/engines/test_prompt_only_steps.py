"""A prompt longer than a step's share is read over steps that give nothing to read back."""

import pytest

from profiles.records import StepRecord, TrialConfig
from tuner.engines.base import Request
from tuner.engines.redrafter.decode import PROMPT_TOKENS_PER_STEP
from tuner.engines.redrafter.engine import RedrafterEngine


@pytest.mark.gpu
def test_a_long_prompt_alone_is_read_in_several_steps():
    engine = RedrafterEngine()
    engine.prepare(TrialConfig(device="cuda", draft_len=0, beam_width=1), 1600)
    prompt = tuple(range(300, 300 + 3 * PROMPT_TOKENS_PER_STEP))
    steps = [r for r in engine.serve([Request("long", prompt, 4)]) if isinstance(r, StepRecord)]
    reading = [s for s in steps if s.context_tokens]
    assert [s.context_tokens for s in reading] == [PROMPT_TOKENS_PER_STEP] * 3
    assert all(s.prefill_ms > 0 for s in reading)
    engine.close()
