"""What the pages show, as plain data: state, rows, facts, and the spec of the form."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from dashboard.data.asked import spec_of
from dashboard.data.judged import OBJECTIVES
from dashboard.data.live_state import WORDS, live_state, utc_now
from dashboard.data.sweep_request import SweepRequest
from dashboard.data.trial_facts import evidence, facts
from dashboard.data.trial_rows import as_frame, finished_rows, trial_rows
from profiles.errors import DamagedRun
from profiles.records import TextCheck, TrialConfig, TrialProgress
from profiles.status import RunStatus
from profiles.store import RunStore
from tests.dashboard.hand_made import (
    BEGUN,
    NO_METERS,
    baseline,
    failed,
    infeasible,
    make_run,
    run_record,
    trial,
)
from tuner.errors import BadInput
from tuner.sweep.spec import Objective, SweepSpec

SOON = datetime.fromisoformat(BEGUN) + timedelta(seconds=20)
LATER = SOON + timedelta(hours=1)


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path)


def test_a_running_sweep_counts_and_guesses_what_is_left(store):
    run = make_run(store, baseline(0), trial(1), state="running", message="trial 2")
    state = live_state(run, run.trials(), SOON)
    assert (state.words, state.done, state.planned, state.message) == ("Running", 2, 5, "trial 2")
    assert (state.elapsed_s, state.left_s) == (20.0, 30.0)
    assert (state.unfinished, state.can_stop, state.can_resume) == (True, True, False)


def test_a_requested_stop_shows_until_it_is_heard(store):
    run = make_run(store, state="running")
    run.request_stop()
    state = live_state(run, [], SOON)
    assert (state.words, state.can_stop) == ("Stopping after this trial", False)


def test_a_finished_sweep_stops_its_clock(store):
    state = live_state(make_run(store, trial(0)), [trial(0)], LATER)
    assert (state.words, state.elapsed_s, state.left_s) == ("Done", 10.0, None)
    assert not (state.unfinished or state.can_stop or state.can_resume)


@pytest.mark.parametrize("ending", ["stopped", "failed", "interrupted"])
def test_a_sweep_that_ended_early_can_be_resumed(store, ending):
    assert live_state(make_run(store, state=ending), [], LATER).can_resume


def test_a_sweep_whose_process_never_spoke_counts_as_starting_only_at_first(store):
    run = make_run(store, state=None)
    assert live_state(run, [], SOON).words == "Starting"
    late = live_state(run, [], LATER)
    assert (late.words, late.can_resume) == ("Never started", True)


def test_a_launched_sweep_whose_owner_never_came_never_started(store):
    run = make_run(store, state="stopped")
    now = utc_now()
    run.write_status(RunStatus(state="starting", message="resuming", updated_at=now.isoformat()))
    assert live_state(run, [], now).state == "starting"
    late = live_state(run, [], now + timedelta(minutes=5))
    assert (late.words, late.can_resume) == ("Never started", True)


def test_the_message_says_how_far_the_trial_has_come(store):
    run = make_run(store, state=None)
    run.write_status(RunStatus.of_this_process("running", "trial 0: no speculation", trial=0))
    assert live_state(run, [], SOON).message == "trial 0: no speculation"
    run.trial(0).write_progress(TrialProgress(fraction=0.5, doing="round 3 of 8"))
    assert live_state(run, [], SOON).message == "trial 0: no speculation · round 3 of 8"


def test_every_state_has_words():
    assert set(WORDS) == {
        "starting", "running", "stopping", "done", "stopped", "failed", "interrupted",
        "never started",
    }  # fmt: skip


def test_rows_are_by_number_with_the_reason_of_what_is_missing(store):
    run = make_run(store, infeasible(3), failed(1, "no room"), baseline(0), state="running")
    run.trial(4).write_config(TrialConfig(beam_width=2, draft_len=5))
    rows = trial_rows(run, run.trials(), unfinished=True)
    assert [(row.trial, row.state, row.note) for row in rows] == [
        (0, "complete", "no speculation: the baseline"),
        (1, "failed", "no room"),
        (3, "over a limit", "tpot_ms_p95 breaks its limit 5"),
        (4, "running", ""),
    ]
    assert (rows[1].tokens_per_s, rows[1].speedup) == (None, None)
    assert (rows[2].tokens_per_s, rows[2].speedup, rows[2].interval) == (60.0, 1.5, "[1.40, 1.60]")
    assert (rows[0].beam_width, rows[3].beam_width) == (None, 2)


def test_a_trial_cut_short_says_that_it_is_measured_again(store):
    run = make_run(store, state="stopped")
    run.trial(0).write_config(TrialConfig())
    (row,) = trial_rows(run, [], unfinished=False)
    assert (row.state, "measured again" in row.note) == ("interrupted", True)


def test_a_table_without_rows_keeps_its_columns():
    assert list(as_frame([]))[:3] == ["trial", "beam_width", "draft_len"]


def test_drafters_are_shown_where_more_than_one_is_tried():
    def rows(*knobs):
        speculating = [trial(n, config=TrialConfig(**each)) for n, each in enumerate(knobs, 1)]
        return as_frame(finished_rows([baseline(0), *speculating]))

    one = rows({"drafter": "a"}, {"drafter": "a", "beam_width": 2})
    assert not {"drafter", "draft_vocab_size", "drafter_quantization"} & set(one)
    two = rows({}, {"drafter": "retrieval"})
    assert two["drafter"].isna()[0] and list(two["drafter"][1:]) == ["default", "retrieval"]
    assert "draft_vocab_size" not in two
    sizes = rows({"draft_vocab_size": 64}, {})["draft_vocab_size"]
    assert sizes[1] == 64 and list(sizes.isna()) == [True, False, True]
    precisions = rows({"drafter_quantization": "fp8"}, {})["drafter_quantization"]
    assert precisions.isna()[0] and list(precisions[1:]) == ["fp8", "default"]


def test_text_that_differs_is_noted(store):
    differs = trial(0, text=TextCheck(requests=2, equal=1))
    (row,) = trial_rows(make_run(store, differs), [differs], unfinished=False)
    assert row.note == "text differs in 1 requests"


def test_facts_give_a_reason_for_what_is_missing():
    shown = dict(facts(trial(0)))
    assert shown["Speed-up [95 % interval]"] == "1.50x [1.40, 1.60]"
    assert shown["Energy per token"] == f"n/a ({NO_METERS})"
    assert shown["Peak memory"] == "n/a (the allocator keeps no count)"
    assert shown["Memory of weights"] == "200 MiB"
    told = trial(0).memory.model_copy(update={"weights_bytes": 100 << 20, "reason": "the CPU"})
    shown = dict(facts(trial(0, memory_predicted=told)))
    assert shown["Memory of weights"] == "200 MiB, predicted 100 MiB"
    assert shown["Peak memory"] == "n/a (the allocator keeps no count), predicted n/a (the CPU)"
    without = dict(facts(baseline(0)))
    assert without["Path acceptance: (length - 1) / D"] == "n/a (this trial does not speculate)"
    assert facts(failed(0)) == []


def test_evidence_names_host_workload_and_commit():
    shown = dict(evidence(run_record("r", {}), trial(0)))
    assert shown["Output"] == "60.0 tok/s"
    assert shown["Host"] == "test CPU, 2 cores"
    assert shown["Software"] == "torch 2.13.0, commit 0123456789ab with changes"


REQUEST = {
    "engine": "fake",
    "model": " m ",
    "workload": "builtin",
    "beam_width": [1, 4],
    "draft_len": [3],
    "batch_size": [1],
    "quantization": [None],
    "requests": 8,
    "max_new_tokens": 16,
    "objective": "output_tokens_per_s",
    "trials": 2,
    "sampler": "tpe",
    "seed": 3,
}


def test_the_form_becomes_a_spec_with_limits_in_the_records_units():
    spec = SweepRequest(**REQUEST, max_tpot_ms_p95=50.0, max_memory_mib=2.0).spec()
    assert (spec.engine, spec.model, spec.drafter, spec.seed) == ("fake", "m", None, 3)
    assert (spec.space.beam_width, spec.workload.requests, spec.workload.seed) == ([1, 4], 8, 3)
    assert spec.limits == {"tpot_ms_p95": 50.0, "memory_peak_bytes": 2.0 * 1024 * 1024}
    assert (spec.space.drafter, spec.space.draft_vocab_size) == ([None], [None])


def test_an_fp8_kv_cache_of_the_form_is_searched_and_named_in_the_table():
    spec = SweepRequest(**REQUEST, kv_cache_dtype=["auto", "fp8"]).spec()
    rows = finished_rows([trial(n, config=c) for n, c in enumerate(spec.baselines())])
    named = {row.precision.endswith(", fp8 KV cache") for row in rows}
    assert (len(rows), named) == (
        2 * len(SweepRequest(**REQUEST).spec().baselines()),
        {True, False},
    )


def test_drafters_of_the_form_are_searched():
    drafts = {"draft_vocab_size": [64], "drafter_quantization": [None, "fp8"]}
    spec = SweepRequest(**REQUEST, drafter=[None, "retrieval"], **drafts).spec()
    drafted = {(p.drafter, p.draft_vocab_size, p.drafter_quantization) for p in spec.points()}
    assert drafted == {(None, 64, None), (None, 64, "fp8"), ("retrieval", None, None)}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"beam_width": []}, "space.beam_width"),
        ({"trials": 0}, "trials"),
        ({"max_tpot_ms_p95": 0.0}, "limits.tpot_ms_p95"),
    ],
)
def test_a_wrong_field_is_named(change, field):
    with pytest.raises(BadInput) as caught:
        SweepRequest(**(REQUEST | change)).spec()
    assert caught.value.field == field


def test_every_objective_has_words():
    assert set(OBJECTIVES) == set(Objective.__args__)


def test_a_single_run_counts_as_a_sweep_for_throughput(store):
    asked = {"config": TrialConfig(engine="fake", model="m").model_dump(), "workload": {}}
    run = store.create(run_record("run-1", asked, kind="run"))
    assert spec_of(run) == SweepSpec(engine="fake", model="m")


@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_a_spec_of_another_version_is_a_damaged_run(store, kind):
    run = store.create(run_record("old", {"knobs": 1}, kind=kind))
    with pytest.raises(DamagedRun):
        spec_of(run)
