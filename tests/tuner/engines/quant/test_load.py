"""Which prompts a model is calibrated on."""

from __future__ import annotations

import pytest
import torch

from tests.tuner.engines.tiny import save_tiny_llama
from tuner.engines.redrafter.linear import compute_path
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.quant.load import calibration_prompts, load_computed
from tuner.errors import BadInput


def test_the_first_prompts_of_the_workload_rendered_for_the_model(builtin_model):
    prompts = calibration_prompts(builtin_model, "builtin")
    assert len(prompts) == len(set(prompts)) == 32
    assert max(map(len, prompts)) <= 512


def test_a_load_without_text_calibrates_nothing(builtin_model, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,48,10\n")
    with pytest.raises(BadInput, match=r"calibration = .*has no text"):
        calibration_prompts(builtin_model, str(trace))


def test_a_precision_that_is_not_quantized_asks_for_no_prompts(tmp_path):
    folder = save_tiny_llama(tmp_path / "llama")  # it has no tokenizer
    assert isinstance(load_computed(folder, compute_path("fp32", torch.device("cpu"))), Llama)
