"""`tuner import` on its own: what it prints, where it keeps the tables, how it ends."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from profiles.nsight import read_table
from tuner.commands.import_profile import import_profile
from tuner.runs import create_run

TRACE = {
    "traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 2, "args": {"device": 0}}
    ]
}


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(TRACE))
    return path


@pytest.fixture
def invoke():
    app = typer.Typer()
    app.command()(import_profile)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_json_has_the_summary_and_reasons_for_what_is_missing(invoke, trace):
    done = invoke(trace, "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (report["format"], report["state"], report["kernels"]) == ("kineto", "complete", 1)
    assert report["kernel_time_ns"] == 2000
    assert report["copies"] is None and report["missing"]["copies"]
    assert report["folder"] is None


def test_with_a_run_the_tables_are_kept_there(invoke, trace, tmp_path, monkeypatch):
    monkeypatch.setenv("TUNER_RUNS_DIR", str(tmp_path / "runs"))
    run = create_run("run", {}, 0, "hash")
    report = json.loads(invoke(trace, "--run", run.run_id, "--json").stdout)
    (folder,) = (run.path / "imports").iterdir()
    assert report["folder"] == str(folder)
    assert read_table(folder, "kernels")["name"].to_pylist() == ["gemm"]


def test_words_name_gpu_busy_time(invoke, trace):
    printed = invoke(trace).stdout
    assert "GPU 0 busy" in printed and "2,000 ns" in printed


@pytest.mark.parametrize("content", ["", "no profile", "SQLite format 3\0"])
def test_what_cannot_be_read_is_bad_input(invoke, tmp_path, content):
    path = tmp_path / "file.sqlite"
    path.write_text(content)
    done = invoke(path, "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["kind"] == "BadInput"


def test_an_unknown_run_is_bad_input(invoke, trace, tmp_path, monkeypatch):
    monkeypatch.setenv("TUNER_RUNS_DIR", str(tmp_path / "runs"))
    assert invoke(trace, "--run", "nope").exit_code == 2
