"""Children started by these tests find the packages where pytest found them."""

from pathlib import Path

import pytest

import profiles


@pytest.fixture(autouse=True)
def _children_find_the_packages(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(profiles.__file__).parents[1]))
