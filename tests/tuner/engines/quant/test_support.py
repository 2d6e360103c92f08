"""What a device refuses, and in which words."""

from __future__ import annotations

import pytest
import torch

from tuner.engines.redrafter.linear import compute_path
from tuner.engines.redrafter.quant.support import refused, refused_by_card
from tuner.errors import UnsupportedConfig


def test_an_old_card_is_refused_by_its_compute_capability():
    assert refused_by_card((9, 0), "NVIDIA H200") == {}
    assert list(refused_by_card((8, 0), "NVIDIA A100")) == ["fp8"]
    assert list(refused_by_card((7, 5), "Tesla T4")) == ["fp8", "int8_sq", "int4_awq"]
    assert refused_by_card((8, 6), "RTX 3090")["fp8"] == (
        "needs an NVIDIA GPU of compute capability 8.9 or higher, RTX 3090 has 8.6; use bf16"
    )


def test_the_cpu_says_what_it_needs():
    reasons = refused(torch.device("cpu"))
    assert all("NVIDIA GPU" in reason and "use bf16" in reason for reason in reasons.values())
    with pytest.raises(UnsupportedConfig, match=r"quantization = 'fp8'.*8\.9 or higher"):
        compute_path("fp8", torch.device("cpu"))


def test_an_unknown_precision_names_those_there_are():
    with pytest.raises(UnsupportedConfig, match="fp32, fp16, bf16, fp8, int8_sq, int4_awq"):
        compute_path("int2", torch.device("cpu"))
