"""Whole sweeps on the fake engine, in real processes, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profiles.records import TrialState
from profiles.store import RunStore
from tests.tuner.engines.tiny import save_tiny_drafter
from tests.tuner.engines.training_tiny import VOCAB, save_model
from tuner.errors import BadInput, Interrupted
from tuner.launch import create_sweep, host_lock
from tuner.sweep.coordinator import NUMBER, Coordinator
from tuner.sweep.spec import SweepSpec
from tuner.sweep.study import open_study
from tuner.verdict import judge

ROOT = Path(__file__).parents[3]
SMALL = {"requests": 4, "max_new_tokens": 8}


@pytest.fixture(autouse=True)
def _runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNER_RUNS_DIR", str(tmp_path / "runs"))


def spec(**changes) -> SweepSpec:
    base = {
        "engine": "fake",
        "model": "fake",
        "space": {"beam_width": [1, 4], "draft_len": [2, 4], "batch_size": [1, 2]},
        "workload": SMALL,
        "trials": 3,
    }
    return SweepSpec.model_validate({**base, **changes})


def sweep(**changes):
    run = create_sweep(spec(**changes))
    Coordinator(run, spec(**changes)).run_to_the_end()
    return run


def test_baselines_come_first_and_no_config_is_measured_twice():
    run = sweep(trials=8)  # the whole space: 2 x 2 x 2
    results = run.trials()
    assert [r.number for r in results] == list(range(10))
    assert [(r.config.draft_len, r.config.batch_size) for r in results[:2]] == [(0, 1), (0, 2)]
    assert len({r.config_hash for r in results}) == len(results) == 10
    assert {r.state for r in results} == {TrialState.COMPLETE}
    assert run.status().state == "done"
    assert run.status().trials_done == run.status().trials_planned == 10


def test_drafters_are_searched_against_the_same_baselines():
    space = {
        "beam_width": [2], "draft_len": [2], "batch_size": [1],
        "drafter": ["one", "retrieval"], "draft_vocab_size": [64, 512],
    }  # fmt: skip
    run = sweep(space=space, sampler="grid", trials=100)
    baseline, *trials = [result.config for result in run.trials()]
    assert (baseline.draft_len, baseline.drafter) == (0, None)
    tried = [(config.drafter, config.draft_vocab_size) for config in trials]
    assert tried == [("one", 64), ("one", 512), ("retrieval", None)]
    verdict = judge(run)
    assert verdict.feasible == 4
    assert run.trial(verdict.best).config().describe() in verdict.verdict


def test_a_search_over_drafters_is_resumed():
    space = {"beam_width": [2], "draft_len": [2, 3], "batch_size": [1], "drafter": ["a", None]}
    run = sweep(space=space, trials=2)
    before = run.trials()
    Coordinator(run, spec(space=space, trials=4)).run_to_the_end()
    after = run.trials()
    assert after[:3] == before and len({r.config_hash for r in after}) == len(after) == 5


def test_a_drafter_that_does_not_fit_costs_its_own_trials(tmp_path):
    model = save_model(tmp_path / "model")
    short = save_tiny_drafter(tmp_path / "short", vocab=VOCAB, trained_draft_len=1)
    space = {
        "beam_width": [2], "draft_len": [2], "batch_size": [2], "quantization": ["fp32"],
        "drafter": [str(short), "retrieval"],
    }  # fmt: skip
    run = sweep(engine="redrafter", model=str(model), device="cpu", space=space)
    plain, *others = run.trials()
    told = {other.config.drafter: other for other in others}
    assert plain.state is told["retrieval"].state is TrialState.COMPLETE
    assert told["retrieval"].text.all_equal
    assert "draft_len = 2: the drafter was trained for at most 1" in told[str(short)].error


def test_what_the_disk_shows_is_said_before_a_run_is_made(tmp_path):
    model = save_model(tmp_path / "model")
    fits = save_tiny_drafter(tmp_path / "fits", vocab=VOCAB)
    wide = save_tiny_drafter(tmp_path / "wide", vocab=VOCAB, hidden_size=48, exit_dim=48)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")

    def create(*drafters):
        return create_sweep(spec(engine="redrafter", model=str(model), space={"drafter": drafters}))

    for drafter, message in (
        ("/nowhere", "drafter = '/nowhere': no such directory"),
        (str(wide), "its hidden_size is 48, the base model's is 32"),
        (str(tmp_path / "broken"), r"has no readable config\.json"),
        (f"retrieval:{tmp_path / 'none.txt'}", "its text store does not exist"),
        (None, "drafter = None: none is shipped for"),
    ):
        with pytest.raises(BadInput, match=message):
            create("retrieval", drafter)
    assert RunStore(tmp_path / "runs").list() == []
    create("retrieval", f"retrieval:{tmp_path}", str(fits), str(model), "some/hub-id")
    (model / "config.json").unlink()
    with pytest.raises(BadInput, match=r"model = .* has no readable config\.json"):
        create(str(fits))


def test_the_study_holds_what_the_disk_holds():
    run = sweep(limits={"tpot_ms_p95": 1000.0, "output_tokens_per_s": 50.0})
    trials = open_study(run.study_path, spec()).trials
    told = {t.user_attrs[NUMBER]: t for t in trials if NUMBER in t.user_attrs}
    results = run.trials()
    assert any(r.state is TrialState.INFEASIBLE for r in results)
    for result in results:
        assert told[result.number].value == result.metrics.output_tokens_per_s
        feasible = all(v <= 0 for v in told[result.number].constraints.values())
        assert feasible == (result.state is TrialState.COMPLETE)


def test_a_crashing_trial_costs_one_trial():
    run = sweep(model="crash", trials=1)
    results = run.trials()
    assert {r.state for r in results} == {TrialState.FAILED}
    assert all("was asked to fail" in r.error for r in results)
    assert run.status().state == "done"
    assert judge(run).best is None


def test_a_worker_that_is_killed_is_a_failed_trial(monkeypatch):
    run = create_sweep(spec(trials=1))
    coordinator = Coordinator(run, spec(trials=1))
    real = coordinator._work

    def kill_the_first(number: int) -> None:
        if number > 0:
            return real(number)
        run.trial(0).log_path.write_text("Segmentation fault\n")
        return None

    monkeypatch.setattr(coordinator, "_work", kill_the_first)
    coordinator.run_to_the_end()
    first, *others = run.trials()
    assert first.error == "the worker died: Segmentation fault"
    assert {r.state for r in others} == {TrialState.COMPLETE}


def test_stop_then_resume(monkeypatch):
    run = create_sweep(spec())
    coordinator = Coordinator(run, spec())
    real = coordinator._work

    def stop_after(number: int) -> None:
        real(number)
        run.request_stop()

    monkeypatch.setattr(coordinator, "_work", stop_after)
    with pytest.raises(Interrupted, match="stopped on request"):
        coordinator.run_to_the_end()
    assert run.status().state == "stopped"
    [first] = run.trials()
    Coordinator(run, spec()).run_to_the_end()
    assert run.trials()[0] == first
    assert run.status().trials_done == 5
    assert len({r.config_hash for r in run.trials()}) == 5


def wait_for(condition, deadline_s: float = 60.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)


def test_sigkill_in_the_middle_loses_and_repeats_nothing(tmp_path):
    store = RunStore(tmp_path / "runs")
    command = [sys.executable, "-m", "tuner", "sweep", str(tmp_path / "spec.yaml")]
    (tmp_path / "spec.yaml").write_text(json.dumps(spec(trials=4).model_dump(mode="json")))
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    wait_for(lambda: store.list() and len(store.list()[0].trials()) >= 2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    [run] = store.list()
    assert run.observed_state() == "interrupted"
    before = {r.number: r for r in run.trials()}
    again = [sys.executable, "-m", "tuner", "resume", run.run_id, "--json"]
    done = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["finished"] == 6
    after = {r.number: r for r in run.trials()}
    assert {n: after[n] for n in before} == before
    assert len({r.config_hash for r in after.values()}) == len(after) == 6


def test_a_result_that_was_not_told_is_told_on_resume():
    run = sweep()
    study = open_study(run.study_path, spec())
    trial = study.ask()  # as if the coordinator had died between measuring and telling
    measured = run.trials()[-1].model_copy(update={"number": 99, "config_hash": "other"})
    trial.set_user_attr(NUMBER, 99)
    run.trial(99).write_result(measured)
    Coordinator(run, spec())._recover()
    told = open_study(run.study_path, spec()).trials[trial.number]
    assert told.value == measured.metrics.output_tokens_per_s


def test_one_sweep_at_a_time_on_a_host():
    first, second = create_sweep(spec()), create_sweep(spec())
    with host_lock(first), pytest.raises(BadInput, match="is being measured on this host"):  # noqa: SIM117
        with host_lock(second):
            pass
