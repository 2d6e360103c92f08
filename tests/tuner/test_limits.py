from __future__ import annotations

import pytest
import torch

from tuner import limits
from tuner.errors import BadInput

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(limits, "_STREAM_BYTES", {"cpu": 2**20})
    monkeypatch.setattr(limits, "_ROWS", {"cpu": 32})
    for cached in (limits.device_limits, limits.read_bandwidth):
        cached.cache_clear()
    yield
    for cached in (limits.device_limits, limits.read_bandwidth):
        cached.cache_clear()


def test_limits_are_measured_once():
    found = limits.device_limits("cpu", "fp32")
    assert (found.device, found.matmul, found.reason) == ("cpu", "fp32", None)
    assert found.read_bytes_per_s > 0 and found.matmul_flop_per_s > 0
    assert limits.device_limits("cpu", "fp32") is found


def test_a_faster_probe_gives_a_higher_limit():
    """The time of a call is that of the fastest group, so a slow call shows as slow."""
    small, large = torch.ones(8, 8), torch.ones(256, 256)
    quick = limits.best_s(lambda: small @ small, CPU, 0.02)
    slow = limits.best_s(lambda: large @ large, CPU, 0.02)
    assert 0 < quick < slow


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "fp8", "int8_sq", "int4_awq"])
def test_every_precision_has_an_arithmetic_that_runs(precision):
    arithmetic = limits._arithmetic(precision, CPU)
    assert limits._product(arithmetic, CPU)().shape == (32, 32)


def test_only_int4_multiplies_in_bf16_on_a_gpu():
    """The tensor cores take FP8 and INT8 as they are; INT4 is widened first."""
    found = [limits._arithmetic(p, torch.device("cuda")) for p in ("int4_awq", "int8_sq", "fp8")]
    assert found == ["bf16", "int8", "fp8"]


def test_what_the_device_refuses_is_null_with_its_reason(monkeypatch):
    def refuse(*_):
        raise RuntimeError("no such kernel\nat line 7")

    monkeypatch.setattr(limits, "_product", refuse)
    found = limits.device_limits("cpu", "fp32")
    assert found.matmul_flop_per_s is None
    assert found.reason == "fp32 products could not be measured: no such kernel"
    assert found.read_bytes_per_s > 0


def test_unknown_device_is_refused():
    with pytest.raises(BadInput, match="device"):
        limits.device_limits("tpu", "fp32")
