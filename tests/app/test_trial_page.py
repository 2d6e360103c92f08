"""The Trial page: each of its sections, for every shape of trial, and the import form."""

from __future__ import annotations

import pytest

from profiles.records import STEP_PHASES, PhaseTime, StepAnatomy
from profiles.telemetry.parts import PartWriter
from tests.dashboard.hand_made import baseline, failed, infeasible, make_run, trial
from tests.dashboard.small_profile import small_profile

SECTIONS = ("Overview", "Timeline", "Steps", "Profiles", "Side by side")


def words(at):
    """Everything the page says."""
    kinds = (at.title, at.markdown, at.caption, at.info, at.success, at.warning, at.error)
    return "\n".join(str(each.value) for kind in kinds for each in kind)


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("number", ["0", "1", "2", "3"])
def test_every_section_of_every_kind_of_trial(open_page, store, section, number):
    make_run(store, baseline(0), trial(1), failed(2), infeasible(3))
    at = open_page("trial", run="sweep-1", trial=number, section=section)
    assert next(tab for tab in at.tabs if tab.label == section).children


def test_overview_has_headline_findings_and_config(open_page, store):
    make_run(store, baseline(0), trial(1, ratio=0.7))
    at = open_page("trial", run="sweep-1", trial="1")
    assert {metric.label for metric in at.metric} >= {"Output tokens/s", "Speed-up"}
    assert any("Next:" in block.value for block in at.markdown)
    config = at.table[-1].value
    assert "0000000000000001" in config.to_string()


def test_timeline_without_telemetry_says_so(open_page, store):
    make_run(store, trial(0))
    assert "No telemetry was recorded for trial 0" in words(open_page("trial", section="Timeline"))


def test_timeline_names_what_was_not_measured(open_page, store):
    run = make_run(store, trial(0))
    folder = run.trial(0).telemetry_dir
    folder.mkdir()
    rows = [{"t_s": float(n), "unix_s": 0.0, "source": "host", "host_cpu_pct": 1.0} for n in (1, 2)]
    PartWriter(folder).write(rows)
    said = words(open_page("trial", section="Timeline"))
    assert "Not measured: SM active, tensor active, DRAM active" in said
    assert "no GPU was sampled" in said


def test_steps_say_how_much_of_the_wall_time_they_explain(open_page, store):
    time = PhaseTime(mean_ms=1.0, p50_ms=1.0, p95_ms=2.0, share=0.1)
    anatomy = StepAnatomy(
        steps=50,
        wall_ms=2000.0,
        phases=dict.fromkeys(STEP_PHASES, time),
        gaps=time,
        accounted_share=0.995,
    )
    make_run(store, trial(0, anatomy=anatomy))
    said = words(open_page("trial", section="Steps"))
    assert "50 steps in 2.0 s of wall time; phases and gaps account for 99.5% of it." in said
    assert "No roofline: the trial's record holds no model shape" in said


@pytest.fixture
def profile(tmp_path):
    return small_profile(tmp_path / "small.sqlite")


def press_import(at):
    next(each for each in at.button if each.label == "Import").click().run()
    assert not at.exception, at.exception
    return at


def test_an_upload_is_imported_and_shown(open_page, store, profile):
    make_run(store, trial(0))
    at = open_page("trial", section="Profiles")
    at.file_uploader[0].set_value(("small.sqlite", profile.read_bytes(), "application/x-sqlite3"))
    press_import(at)
    assert "small.sqlite**: 3 kernels, 1 copies, 2 NVTX ranges" in words(at).replace("\\", "")
    assert list(at.dataframe[0].value["kernel"]) == ["gemm_64x64", "softmax"]
    assert len(list((store.root / "sweep-1" / "imports").iterdir())) == 1


def test_a_damaged_upload_is_named_and_nothing_is_kept(open_page, store, profile):
    make_run(store, trial(0))
    at = open_page("trial", section="Profiles")
    at.file_uploader[0].set_value(("cut.sqlite", profile.read_bytes()[:5000], "application/x"))
    press_import(at)
    assert "cut.sqlite** was not imported" in words(at).replace("\\", "")
    assert not (store.root / "sweep-1" / "imports").exists()


def test_a_path_is_imported_only_below_the_root(open_page, store, profile, monkeypatch):
    make_run(store, trial(0))
    monkeypatch.setenv("TUNER_IMPORT_ROOT", str(profile.parent))
    at = open_page("trial", section="Profiles")
    at.text_input[0].set_value("/etc/hostname")
    assert "lies outside" in words(press_import(at))
    at.text_input[0].set_value("small.sqlite")
    assert "3 kernels" in words(press_import(at))


def test_nothing_chosen_to_import(open_page, store):
    make_run(store, trial(0))
    assert "Nothing to import" in words(press_import(open_page("trial", section="Profiles")))


def test_an_unknown_profile_in_the_address_is_named(open_page, store, profile):
    run = make_run(store, trial(0))
    from profiles.nsight import write_import

    write_import(run.path / "imports", profile)
    at = open_page("trial", section="Profiles", profile="../../x")
    assert "asks for profile '../../x', which this run does not have" in words(at)


def test_a_torn_import_says_to_import_again(open_page, store, profile):
    from profiles.nsight import write_import

    run = make_run(store, trial(0))
    folder = write_import(run.path / "imports", profile)
    (folder / "kernels.parquet").write_bytes(b"torn")
    assert "Import the file again" in words(open_page("trial", section="Profiles"))


def test_two_trials_side_by_side(open_page, store):
    make_run(store, baseline(0), trial(1), trial(2, ratio=3.0))
    at = open_page("trial", trial="1", section="Side by side")
    at.selectbox[-1].select(2).run()
    pairs = at.dataframe[0].value.set_index("what")
    assert pairs.loc["Output tokens/s", "change_pct"] == pytest.approx(100)


def test_two_profiles_side_by_side(open_page, store, profile, tmp_path):
    from profiles.nsight import write_import

    run = make_run(store, trial(0))
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
        "100.0,9000000,3,3000000.0,3000000.0,3000000,3000000,0.0,gemm_64x64\n"
    )
    for file in (profile, trace):
        write_import(run.path / "imports", file)
    at = open_page("trial", section="Side by side")
    at.button_group[0].set_value("Profiles").run()
    assert not at.exception, at.exception
    pairs = at.dataframe[1].value.set_index("kernel")
    assert abs(pairs.loc["gemm_64x64", "difference_ms"]) == 4.0
    assert len(pairs) == 2


def test_a_profiled_trial_says_that_its_times_are_no_result(open_page, store):
    make_run(store, trial(0, profiler="nsys"))
    assert "none of its times is a result" in words(open_page("trial"))
