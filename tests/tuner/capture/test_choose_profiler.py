"""What a person may ask of --profile, and what this host and trial can give."""

from __future__ import annotations

import pytest

from profiles.nsight.local_tool import find_tool
from profiles.records import TrialConfig
from tests.tuner.capture.fake_nsight import FakeTool
from tuner.capture.choose import choose_profiler
from tuner.errors import BadInput

CONFIG = TrialConfig(engine="fake", model="fake")


def test_nothing_asked_is_no_profiler():
    assert choose_profiler(CONFIG, None, None, None) is None


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("perf", None, None), "profile = 'perf': use one of nsys, ncu, torch"),
        ((None, "node", None), "graph_trace = 'node': add --profile"),
        ((None, None, 3), "profile_steps = 3: add --profile"),
        (("torch", "node", None), "graph_trace = 'node': only --profile nsys"),
        (("nsys", "kernel", None), "graph_trace = 'kernel': use graph or node"),
    ],
)
def test_what_makes_no_sense_is_named(asked, message):
    with pytest.raises(BadInput, match=message):
        choose_profiler(CONFIG, *asked)


@pytest.mark.parametrize(
    ("tool", "product"), [("nsys", "Nsight Systems"), ("ncu", "Nsight Compute")]
)
def test_a_missing_tool_is_named_with_the_remedy(tool, product, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    if find_tool(tool):
        pytest.skip(f"{tool} is installed here")
    with pytest.raises(BadInput, match=f"`{tool}` is not on this host: install NVIDIA {product}"):
        choose_profiler(CONFIG, tool, None, None)


def test_nsight_is_refused_to_a_trial_without_a_gpu(tmp_path, monkeypatch):
    FakeTool(tmp_path, "ncu", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="profile = 'ncu': it records GPUs, and this trial has none"):
        choose_profiler(CONFIG, "ncu", None, None)


def test_every_profiler_knows_how_many_steps_are_few():
    assert choose_profiler(CONFIG, "torch", None, None).steps == 20
    assert choose_profiler(CONFIG, "torch", None, 3).steps == 3
