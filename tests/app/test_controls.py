"""Start, Stop and Resume: what the buttons ask for, and what they refuse."""

from __future__ import annotations

import pytest

from tests.dashboard.hand_made import make_run, trial
from tuner import launch
from tuner.errors import BadInput


@pytest.fixture
def launched(monkeypatch):
    """Runs handed to the process launcher, which starts nothing."""
    runs = []
    monkeypatch.setattr(launch, "_detach", runs.append)
    return runs


def button(at, label):
    return next(each for each in at.button if each.label == label)


def test_start_is_ready_to_press_and_goes_to_the_new_run(open_page, store, launched):
    at = open_page("start")
    button(at, "Start sweep").click().run()
    assert not at.exception
    (run,) = launched
    assert at.title[0].value == "Live"
    assert at.query_params["run"] == run.run_id
    spec = store.open(run.run_id).record().spec
    assert (spec["engine"], spec["model"], spec["trials"]) == ("redrafter", "smollm2-135m", 16)
    assert spec["space"] == {
        "beam_width": [1, 2, 4, 8],
        "draft_len": [2, 3, 4, 5],
        "draft_len_min": [None],
        "speculate_up_to": [None],
        "batch_size": [1, 4],
        "quantization": [None],
        "kv_cache_dtype": ["auto"],
        "drafter": [None],
        "draft_vocab_size": [None],
        "drafter_quantization": [None],
    }


def test_advanced_knobs_reach_the_sweep(open_page, store, launched):
    at = open_page("start")
    assert "Advanced (optional)" in [expander.label for expander in at.expander]
    pills = {each.label: each for each in at.pills}
    assert all(each.help for each in at.pills)
    assert "2 to D" in pills["Adaptive draft length"].options
    pills["Adaptive draft length"].set_value([None, 1])
    pills["Speculate up to (requests at once)"].set_value([None, 2])
    pills["Draft vocabulary"].set_value([None, 2048])
    pills["Drafter precision"].set_value([None, "fp8"])
    pills["KV cache"].set_value(["fp8"])
    at.multiselect[0].set_value(["the model's own", "retrieval"])
    next(each for each in at.number_input if each.label == "Temperature").set_value(0.7)
    button(at, "Start sweep").click().run()
    assert not at.exception
    (run,) = launched
    spec = store.open(run.run_id).record().spec
    assert spec["workload"]["temperature"] == 0.7
    assert (
        spec["space"]
        | {
            "draft_len_min": [None, 1],
            "speculate_up_to": [None, 2],
            "kv_cache_dtype": ["fp8"],
            "drafter": [None, "retrieval"],
            "draft_vocab_size": [None, 2048],
            "drafter_quantization": [None, "fp8"],
        }
        == spec["space"]
    )


def test_start_shows_the_first_prompt(open_page):
    assert open_page("start").text[0].value.startswith("user: ")


def test_a_wrong_workload_is_named_with_its_remedy(new_page):
    at = new_page("start")
    at.session_state["workload"] = "missing.jsonl"
    at.run()
    assert "**workload** = `'missing.jsonl'`" in at.error[0].value
    assert "there is no such file" in at.error[0].value


def test_an_empty_choice_is_named(open_page, launched):
    at = open_page("start")
    at.pills[0].set_value([])
    button(at, "Start sweep").click().run()
    assert not launched
    assert "space.beam_width" in at.error[0].value


def test_an_active_sweep_is_linked_and_no_second_can_start(open_page, store):
    make_run(store, state="running")
    at = open_page("start")
    assert "sweep-1 is being measured" in at.info[0].value
    assert [each.label for each in at.button] == []


def test_stop_asks_the_run_to_stop(open_page, store):
    run = make_run(store, trial(0), state="running")
    at = open_page("live")
    button(at, "Stop sweep").click().run()
    assert run.stop_requested()
    assert at.metric[0].value == "Stopping after this trial"
    assert button(at, "Stop sweep").disabled


def test_resume_starts_the_run_again(open_page, store, launched):
    run = make_run(store, trial(0), state="stopped")
    at = open_page("live")
    button(at, "Resume sweep").click().run()
    assert [each.run_id for each in launched] == [run.run_id]
    assert at.metric[0].value == "Starting"


def test_resume_that_is_refused_says_why(open_page, store, launched):
    make_run(store, state="running", run_id="sweep-2")
    make_run(store, state="stopped", run_id="sweep-1")
    at = open_page("live", run="sweep-1")
    button(at, "Resume sweep").click().run()
    assert not launched
    assert "sweep-2" in at.error[0].value


def test_a_sweep_that_broke_shows_its_last_words(open_page, store):
    run = make_run(store, state="failed")
    (run.path / "coordinator.log").write_text("the disk is full\n")
    at = open_page("live")
    assert at.code[0].value == "the disk is full"


def test_two_tabs_cannot_both_start(open_page, store, launched, monkeypatch):
    """The page was drawn before the other tab's sweep began; the launcher refuses."""
    at = open_page("start")

    def refuse(spec):
        raise BadInput("RUN", "sweep-1", "is being measured on this host; stop it or wait")

    monkeypatch.setattr(launch, "launch_sweep", refuse)
    button(at, "Start sweep").click().run()
    assert "**RUN** = `'sweep-1'`" in at.error[0].value
