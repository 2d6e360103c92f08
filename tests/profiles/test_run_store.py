import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from measured import requests, run_record, steps, trial_result

from profiles.anatomy import step_total_ms
from profiles.errors import DamagedRun, RunExists, StorageError, UnknownRun
from profiles.records import TrialConfig
from profiles.status import RunStatus, now_utc
from profiles.store import RunStore


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs")


@pytest.fixture
def run(store):
    return store.create(run_record())


def test_a_run_comes_back(store):
    record = run_record(model="smollm2", limits={"ttft_ms": None})
    run = store.create(record)
    assert run.record() == record
    assert store.open("run-1").record() == record
    assert run.study_path.parent == run.exports_dir.parent == run.path


def test_an_id_is_claimed_once(store, run):
    with pytest.raises(RunExists, match="run-1"):
        store.create(run_record())
    assert run.record() == run_record()


def test_only_one_of_many_processes_claims_an_id(store, tmp_path):
    script = """
import sys
from pathlib import Path
from pathlib import Path
from measured import run_record
from profiles.errors import RunExists
from profiles.store import RunStore
sys.stdin.readline()
try:
    RunStore(Path(sys.argv[1])).create(run_record())
    print("mine")
except RunExists:
    print("taken")
"""
    here = str(Path(__file__).parent)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], here])}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(store.root)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )
        for _ in range(3)
    ]  # fmt: skip
    said = sorted(child.communicate("go\n")[0].strip() for child in children)
    assert said == ["mine", "taken", "taken"]


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", ".hidden", "a b", "x" * 129, "a\n"])
def test_an_id_that_is_no_folder_name_is_refused(store, run_id):
    with pytest.raises(ValueError, match="run_id"):
        store.create(run_record(run_id))
    assert not store.root.exists()


def test_a_run_that_cannot_be_written_leaves_nothing(store):
    with pytest.raises(ValueError, match="JSON"):
        store.create(run_record(limit=float("nan")))
    assert list(store.root.iterdir()) == []


def test_a_root_that_cannot_be_made_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        RunStore(tmp_path / "file" / "runs").create(run_record())


def test_runs_are_listed_newest_first_and_damaged_ones_passed_over(store):
    for run_id, day in (("b", 1), ("a", 3), ("c", 2)):
        store.create(run_record(run_id, f"2026-01-0{day}T00:00:00+00:00"))
    (store.root / "c" / "run.json").write_text('{"run_id": "c"')
    (store.root / "notes").mkdir()
    assert [run.run_id for run in store.list()] == ["a", "b"]
    with pytest.raises(DamagedRun, match=r"run\.json"):
        store.open("c").record()


def test_no_runs_yet(store):
    assert store.list() == []
    with pytest.raises(UnknownRun, match="no runs yet"):
        store.open("x")


def test_an_unknown_run_names_its_neighbours(store, run):
    with pytest.raises(KeyError) as caught:
        store.open("run-2")
    assert str(caught.value) == "no run 'run-2': did you mean run-1?"


@pytest.mark.parametrize("run_id", ["../runs/run-1", "run-1/", "./run-1", ""])
def test_an_id_is_never_joined_to_a_path(store, run, run_id):
    with pytest.raises(UnknownRun):
        store.open(run_id)


def test_results_come_back_by_number(run):
    for number in (10, 2, 0):
        run.trial(number).write_result(trial_result(number))
    (run.path / "trials" / "lost+found").mkdir()
    assert run.trials() == [trial_result(0), trial_result(2), trial_result(10)]


@pytest.mark.parametrize("damage", ['{"number": 1, "sta', "", '{"number": 1}', "[]", "\xff"])
def test_a_torn_result_is_set_aside_and_counts_as_missing(run, damage):
    run.trial(0).write_result(trial_result(0))
    run.trial(1).write_result(trial_result(1))
    path = run.trial(1).path / "result.json"
    path.write_bytes(damage.encode("latin-1"))
    assert run.trials() == [trial_result(0)]
    assert run.trial_numbers() == [0, 1]
    assert not path.exists()
    assert path.with_name("result.json.torn").read_bytes() == damage.encode("latin-1")
    run.trial(1).write_result(trial_result(1))
    assert len(run.trials()) == 2


def test_a_temporary_file_of_a_killed_writer_is_no_result(run):
    run.trial(0).write_config(TrialConfig(batch_size=2))
    (run.trial(0).path / ".result.json.0.tmp").write_text("{")
    assert run.trials() == []
    assert run.trial(0).config() == TrialConfig(batch_size=2)


def test_records_come_back_as_tables(run):
    trial = run.trial(3)
    trial.write_steps(steps())
    trial.write_requests(requests())
    table = trial.steps()
    assert table["index"].tolist() == [0, 1, 2, 3]
    assert table["verify_ms"].tolist() == [8.0, 6.0, 6.0, 7.0]
    assert [list(ids) for ids in table["request_ids"]] == [[], ["a", "b"], ["a", "b"], ["b"]]
    assert table["committed"][2].tolist() == [1, 3]
    served = trial.requests()
    assert served["id"].tolist() == ["a", "b"]
    assert served["output_token_ids"][1].tolist() == [1, 2, 3, 4, 5, 6, 7]
    np.testing.assert_array_equal(served["emission_s"][0], [10.1, 10.2, 10.3])


def test_the_times_of_steps_are_those_of_the_steps(run):
    trial = run.trial(0)
    trial.write_steps(steps())
    times = trial.step_times()
    assert times.equals(trial.steps()[list(times)]) and "request_ids" not in times
    assert step_total_ms(times).tolist() == step_total_ms(trial.steps()).tolist()


def test_steps_written_before_a_phase_had_its_column_are_read(run):
    trial = run.trial(0)
    trial.write_steps(steps())
    path = trial.path / "steps.parquet"
    old = pq.read_table(path).drop_columns(["prefill_ms", "tree_ms"])
    pq.write_table(old, path)
    table = trial.steps()
    assert table["prefill_ms"].isna().all() and table["tree_ms"].isna().all()
    assert step_total_ms(table).tolist() == [step.total_ms for step in steps()]


def test_missing_and_torn_tables_are_empty_with_their_columns(run):
    trial = run.trial(0)
    assert trial.steps().empty
    assert "committed" in trial.steps()
    trial.write_steps(steps())
    path = trial.path / "steps.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    assert trial.steps().empty
    assert path.with_name("steps.parquet.torn").exists()


def test_negative_trial_is_refused(run):
    with pytest.raises(ValueError, match="-1"):
        run.trial(-1)


def test_a_stop_can_be_asked_for_and_forgotten(run):
    assert not run.stop_requested()
    run.request_stop()
    assert run.stop_requested()
    run.clear_stop()
    run.clear_stop()
    assert not run.stop_requested()


def test_status_of_a_live_owner(run):
    assert run.status() is None
    assert not run.is_alive()
    status = RunStatus.of_this_process("running", "trial 1", trials_done=1, trials_planned=5)
    run.write_status(status)
    assert run.status() == status
    assert run.is_alive()
    assert run.observed_state() == "running"


def test_a_run_nobody_took_up_yet_is_starting(run):
    run.write_status(RunStatus(state="starting", updated_at=now_utc()))
    assert not run.is_alive()
    assert run.observed_state() == "starting"


@pytest.mark.parametrize("change", [{"process_start": "1"}, {"boot_id": "another boot"}])
def test_a_later_process_with_the_same_pid_is_not_the_owner(run, change):
    run.write_status(RunStatus.of_this_process("running").model_copy(update=change))
    assert not run.is_alive()
    assert run.observed_state() == "interrupted"


def test_a_zombie_is_not_alive(run):
    script = """
import sys
from pathlib import Path
from pathlib import Path
from profiles.status import RunStatus
from profiles.store import RunFolder
RunFolder(Path(sys.argv[1])).write_status(RunStatus.of_this_process(sys.argv[2]))
print("written", flush=True)
sys.stdin.read()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(run.path), "running"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    child.stdout.readline()
    assert run.is_alive()
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and left unreaped
    os.kill(child.pid, 0)  # the usual check still says yes
    assert not run.is_alive()
    assert run.observed_state() == "interrupted"
    child.communicate()
    assert not run.is_alive()


def test_a_finished_run_stays_finished_without_its_owner(run):
    status = RunStatus.of_this_process("done").model_copy(update={"process_start": "1"})
    run.write_status(status)
    assert run.observed_state() == "done"
