from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuner.engines.tiny import save_tiny_drafter, save_tiny_llama


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny") / "llama")


@pytest.fixture(scope="session")
def tiny_drafter(tmp_path_factory) -> Path:
    return save_tiny_drafter(tmp_path_factory.mktemp("tiny") / "drafter")


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Tiny tensors gain nothing from threads, and barriers on busy cores cost milliseconds."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
