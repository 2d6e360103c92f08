"""Fixtures that many tests share."""

from __future__ import annotations

import os

import pytest

import tuner.engines.redrafter  # noqa: F401 - before torch: it says how its threads wait

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


@pytest.fixture(scope="session")
def builtin_model():
    """The prepared built-in model's folder."""
    from tuner.models import resolve_model

    return resolve_model("smollm2-135m")


def pytest_collection_modifyitems(items):
    """GPU tests skip, with the reason, where torch finds no GPU."""
    if not any(item.get_closest_marker("gpu") for item in items):
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="torch finds no NVIDIA GPU here"))
