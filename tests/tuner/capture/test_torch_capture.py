"""PyTorch's profiler on our own engine: the trace it writes shows the engine's phases."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial

import pytest
import typer
from typer.testing import CliRunner

from profiles.nsight import read_table
from profiles.records import STEP_PHASES, TrialConfig
from profiles.store import RunStore
from profiles.trial_capture import join_capture, read_trial_capture
from tests.tuner.engines.tiny import save_tiny_drafter, save_tiny_llama
from tuner.capture.torch_profiler import TorchProfiler
from tuner.capture.window import Window
from tuner.commands.run import run
from tuner.engines.base import Request
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.runs import create_run

STEPS = 4


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    model = save_tiny_llama(folder / "llama")
    drafter = save_tiny_drafter(folder / "drafter")
    return TrialConfig(
        model=str(model),
        drafter=str(drafter),
        device="cpu",
        quantization="fp32",
        beam_width=2,
        draft_len=3,
        batch_size=2,
    )


@pytest.fixture
def requests():
    return [Request(f"r{i}", (3 + i, 5, 7), 12) for i in range(3)]


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNER_RUNS_DIR", str(tmp_path / "runs"))
    return create_run("run", {}, 0, "hash")


@pytest.fixture
def captured(stored, config, requests):
    """The engine served with the profiler's own recording, and its trace joined to trial 0."""
    trial, profiler, engine = stored.trial(0), TorchProfiler(), RedrafterEngine()
    trial.write_config(config)
    window = Window(partial(profiler.recording, trial.path), STEPS)
    measured = window.measure(engine, config, requests)
    engine.close()
    report = profiler.report(trial.path)
    return measured, join_capture(stored, 0, "torch", window.captured, report)


def test_a_trace_of_our_engine_shows_its_phases(captured, stored):
    _, capture = captured
    phases = {phase.phase: phase for phase in capture.anatomy.phases}
    assert phases.keys() >= {"draft", "verify", "accept", "host"}
    assert phases.keys() <= set(STEP_PHASES)
    assert phases["host"].instances == STEPS
    assert capture.anatomy.steps == capture.window.steps == STEPS
    ranges = read_table(stored.path / "imports" / capture.import_id, "ranges").to_pylist()
    in_steps = sum(row["duration_ns"] for row in ranges if row["name"] == "step")
    assert 0 < sum(phase.host_ns for phase in phases.values()) <= in_steps
    assert capture.anatomy.missing["kernels"] == "no GPU work was recorded"
    assert read_trial_capture(stored.trial(0)) == capture


def test_the_rest_of_the_trial_is_served_unrecorded(captured, requests):
    measured, capture = captured
    (served,) = measured.trial
    assert len(served.steps) > STEPS
    assert {record.id for record in served.requests} == {request.id for request in requests}
    assert measured.rounds == [] and measured.baseline == []
    window = capture.window
    assert window.start_s <= served.steps[0].start_s
    assert served.steps[STEPS - 1].start_s < window.end_s <= served.steps[STEPS].start_s


def test_a_window_longer_than_the_trial_records_all_of_it(stored, config, requests):
    window = Window(partial(TorchProfiler().recording, stored.path), 1000)
    engine = RedrafterEngine()
    (served,) = window.measure(engine, config, requests).trial
    engine.close()
    assert window.captured.steps == len(served.steps)


def test_a_window_without_prompts_begins_after_a_step_that_read_none(config, requests):
    window = Window(nullcontext, 2, reads_prompts=False)
    engine = RedrafterEngine()
    (served,) = window.measure(engine, config, requests[:2]).trial
    engine.close()
    first = next(i for i, step in enumerate(served.steps) if not step.context_requests)
    assert first > 0
    assert window.captured.steps == 2
    assert served.steps[first].start_s < window.captured.start_s
    assert window.captured.start_s <= served.steps[first + 1].start_s
    assert {record.id for record in served.requests} == {"r0", "r1"}


def test_the_command_marks_the_run_as_profiled_and_reports_the_capture(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNER_RUNS_DIR", str(tmp_path / "runs"))
    app = typer.Typer()
    app.command()(run)
    load = ["--engine", "fake", "--model", "fake", "--requests", "2", "--max-new-tokens", "6"]
    done = CliRunner().invoke(app, [*load, "--profile", "torch", "--profile-steps", "2", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["profiler"], report["speedup"]) == ("torch", None)
    assert report["capture"]["steps"] == 2
    assert report["capture"]["missing"]["phases"] == "the capture marks no phases of the engine"
    (stored,) = RunStore(tmp_path / "runs").list()
    assert stored.trial(0).result().profiler == "torch"
    assert stored.observed_state() == "done"
    assert (stored.path / "imports" / report["capture"]["import"] / "summary.json").is_file()
