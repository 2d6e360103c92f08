"""Every page renders whatever is on disk, and says what to do where there is nothing to show."""

from __future__ import annotations

import pytest

from profiles.records import TextCheck
from tests.dashboard.hand_made import (
    baseline,
    failed,
    infeasible,
    make_run,
    run_record,
    trial,
)

RUN_PAGES = ("live", "results", "trial", "export")


def words(at):
    """Everything a page says."""
    kinds = (at.title, at.subheader, at.markdown, at.caption, at.info, at.warning, at.error)
    return "\n".join(str(each.value) for kind in (*kinds, at.success) for each in kind)


@pytest.mark.parametrize("page", RUN_PAGES)
def test_no_runs(open_page, page):
    assert "There are no runs yet" in words(open_page(page))


@pytest.mark.parametrize("page", RUN_PAGES)
def test_unknown_run(open_page, store, page):
    make_run(store, trial(0), run_id="sweep-1")
    said = words(open_page(page, run="sweep-2"))
    assert "no run 'sweep-2': did you mean sweep-1?" in said


@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_run_id_is_looked_up_and_never_a_path(open_page, store, page):
    make_run(store, trial(0))
    assert "no run '../sweep-1'" in words(open_page(page, run="../sweep-1"))


@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_run_of_another_version(open_page, store, page):
    store.create(run_record("old", {"knobs": 1}))
    assert "This run cannot be shown" in words(open_page(page, run="old"))


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("live", "No trial has begun"),
        ("results", "Nothing has been measured in this run yet"),
        ("trial", "No trial of this run has a result yet"),
        ("export", "there is nothing to export"),
    ],
)
def test_empty_run(open_page, store, page, expected):
    make_run(store, state="starting")
    assert expected in words(open_page(page))


@pytest.mark.parametrize("page", RUN_PAGES)
@pytest.mark.parametrize("state", ["running", "done", "stopped", "failed", "interrupted", None])
def test_a_run_in_every_state(open_page, store, page, state):
    make_run(store, baseline(0), trial(1), failed(2), state=state)
    assert open_page(page, run="sweep-1").title[0].value.lower() == page


@pytest.mark.parametrize("page", RUN_PAGES)
def test_one_trial(open_page, store, page):
    make_run(store, trial(0))
    open_page(page)


@pytest.mark.parametrize("page", RUN_PAGES)
def test_failed_trials_only(open_page, store, page):
    make_run(store, failed(0), failed(1))
    open_page(page)


def test_results_of_failed_trials_say_why(open_page, store):
    make_run(store, failed(0, "the drafter does not fit the model"))
    said = words(open_page("results"))
    assert "No best config" in said
    assert "Nothing was measured: the drafter does not fit the model" in said


def test_results_without_a_feasible_trial_have_no_best(open_page, store):
    make_run(store, infeasible(0))
    at = open_page("results")
    assert "No best config: no finished config meets the limits." in words(at)
    assert not at.metric


def test_export_of_an_infeasible_trial_says_so(open_page, store):
    make_run(store, infeasible(0))
    assert "Trial 0 cannot be the best: tpot_ms_p95 breaks its limit 5" in words(
        open_page("export")
    )


def test_live_lists_every_trial_with_its_reason(open_page, store):
    make_run(store, baseline(0), trial(1), failed(2, "no room"), infeasible(3))
    at = open_page("live")
    table = at.dataframe[0].value
    assert list(table["trial"]) == [0, 1, 2, 3]
    assert list(table["note"])[2:] == ["no room", "tpot_ms_p95 breaks its limit 5"]
    assert at.error[0].value == "Trial 2 failed: no room"


def test_results_say_the_verdict_first_and_the_headline_numbers(open_page, store):
    make_run(store, baseline(0), trial(1, ratio=1.5), trial(2, ratio=1.2))
    at = open_page("results")
    assert at.markdown[0].value.startswith("#### Best is trial 1,")
    shown = {metric.label: (metric.value, metric.delta) for metric in at.metric}
    assert shown["Output tokens/s"] == ("60.0 tok/s", "40.0 tok/s without speculation")
    assert shown["Speed-up"] == ("1.50x", "95 % interval [1.40, 1.60]")


def test_a_link_opens_its_trial(open_page, store):
    make_run(store, baseline(0), trial(1), trial(2, ratio=1.2))
    at = open_page("results", run="sweep-1", trial="2")
    assert "Trial 2" in [heading.value for heading in at.subheader]


@pytest.mark.parametrize("page", ["results", "trial", "export"])
@pytest.mark.parametrize("wrong", ["99", "-1", "two", "1.0"])
def test_a_wrong_trial_id_is_named_and_the_best_is_shown(open_page, store, page, wrong):
    make_run(store, baseline(0), trial(1))
    at = open_page(page, trial=wrong)
    assert f"asks for trial {wrong!r}" in words(at)
    assert "Showing trial 1." in words(at)


def test_choosing_another_trial_changes_the_address(open_page, store):
    make_run(store, baseline(0), trial(1), trial(2, ratio=1.2))
    at = open_page("export")
    at.selectbox[1].select(2).run()
    assert at.query_params["trial"] == "2"
    assert "Trial 2 is not the best of this run; trial 1 is." in words(at)


def test_choosing_another_run_changes_the_address(open_page, store):
    make_run(store, trial(0), run_id="sweep-1")
    make_run(store, failed(7), run_id="sweep-2")
    at = open_page("live", run="sweep-2")
    at.selectbox[0].select("sweep-1").run()
    assert at.query_params["run"] == "sweep-1"
    assert list(at.dataframe[0].value["trial"]) == [0]


def test_export_offers_every_format_and_the_command(open_page, store):
    make_run(store, baseline(0), trial(1))
    at = open_page("export")
    code = [block.value for block in at.code]
    assert "./run.sh tuner run sweep-1-trial-1.yaml" in code
    assert "./run.sh tuner run sweep-1-trial-1.json" in code
    assert "Trial 1 is the best of this run." in words(at)


@pytest.mark.parametrize(
    ("precision", "expected"), [("fp32", "do not deploy"), ("bf16", "near ties may round apart")]
)
def test_text_that_differs_is_flagged(open_page, store, precision, expected):
    differs = TextCheck(requests=2, equal=1, first_difference="request a, output token 5")
    make_run(store, trial(0, text=differs, precision=precision))
    for page in ("results", "export"):
        said = words(open_page(page))
        assert "Text differs from no speculation in 1 of 2 requests" in said
        assert expected in said


def test_fake_timings_are_never_passed_off_as_measurements(open_page, store):
    spec = {"engine": "fake", "model": "none"}
    store.create(run_record("sweep-1", spec))
    assert "nothing here is a measurement" in words(open_page("live"))


def test_a_trial_shows_the_advisors_findings(open_page, store):
    """The interval of this trial lies below 1, so speculation does not pay at its batch."""
    make_run(store, baseline(0), trial(1, ratio=0.7))
    at = open_page("results", run="sweep-1", trial="1")
    titles = [expander.label for expander in at.expander]
    assert any("warning" in title or "problem" in title for title in titles), titles
    assert any("Next:" in block.value for block in at.markdown)
