"""The command line as people use it: real processes, documented JSON, honest exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FAKE = ["--engine", "fake", "--model", "fake", "--requests", "4", "--max-new-tokens", "8"]
RUN_FIELDS = {
    "engine",
    "model",
    "device",
    "precision",
    "beam_width",
    "draft_len",
    "batch_size",
    "steps",
    "committed_tokens",
    "acceptance_length",
    "path_acceptance_rate",
    "tree_nodes_mean",
    "beam_diversity",
    "output_tokens_per_s",
    "baseline_output_tokens_per_s",
    "speedup",
    "speedup_ci95",
    "ttft_ms_p50",
    "ttft_ms_p95",
    "tpot_ms_p50",
    "tpot_ms_p95",
    "memory_peak_bytes",
    "memory_predicted",
    "kv_cache_dtype",
    "time_share",
    "text_equal_to_baseline",
}


@pytest.fixture
def tuner(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNER_RUNS_DIR", str(tmp_path / "runs"))

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tuner", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    return call


def test_run_prints_the_documented_object(tuner):
    done = tuner("run", *FAKE, "--beam-width", "2", "--draft-len", "3", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report.keys() >= RUN_FIELDS
    assert (report["beam_width"], report["draft_len"]) == (2, 3)
    assert sum(report["time_share"].values()) == pytest.approx(1.0)
    assert report["text_equal_to_baseline"] is True


@pytest.mark.parametrize(("batch_size", "drafted"), [(2, 5), (4, 0)])
def test_auto_settles_the_bounds_and_a_threshold_holds(tuner, tmp_path, batch_size, drafted):
    config = {"engine": "fake", "draft_len": "auto", "batch_size": batch_size}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"config": config}))
    done = tuner("run", str(tmp_path / "config.yaml"), "--speculate-up-to", "2", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    bounds = report["draft_len_min"], report["draft_len"], report["speculate_up_to"]
    assert bounds == (1, 5, 2)
    assert report["draft_len_mean"] == drafted
    assert (report["path_acceptance_rate"] is None) == (drafted == 0)


def test_a_sweep_is_judged_exported_and_run_again(tuner, tmp_path):
    space = {"beam_width": [2], "draft_len": [2, 3], "batch_size": [1]}
    load = {"requests": 4, "max_new_tokens": 8}
    spec = {"engine": "fake", "model": "fake", "space": space, "workload": load, "trials": 2}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    swept = tuner("sweep", str(tmp_path / "spec.yaml"), "--json")
    assert swept.returncode == 0, swept.stderr
    best = json.loads(tuner("best", "latest", "--json").stdout)
    assert best["config"]["draft_len"] in (0, 2, 3)
    assert best["speedup_ci95"][0] <= best["speedup"] <= best["speedup_ci95"][1]
    for to in ("yaml", "json"):
        done = tuner("export", "latest", "--to", to, "--out", str(tmp_path / "out"), "--json")
        file = json.loads(done.stdout)["file"]
        document = yaml.safe_load(Path(file).read_text())
        assert document["config"] == best["config"] | {"quantization": "bf16"}
        evidence = document["evidence"]
        assert evidence["measured"]["speedup_ci95"] == best["speedup_ci95"]
        assert evidence["hardware"]["cores"] >= 1
        assert evidence["versions"]["torch"]
        assert evidence["baseline"]["output_tokens_per_s"] > 0
        again = tuner("run", file, "--json")
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["draft_len"] == best["config"]["draft_len"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", *FAKE, "--beam-width", "0"], "beam_width = 0"),
        (["run", *FAKE, "--draft-len", "-1"], "draft_len = -1"),
        (["run", *FAKE, "--draft-len", "long"], "draft_len = 'long'"),
        (["run", *FAKE, "--draft-len", "3", "--draft-len-min", "4"], "draft_len_min = 4"),
        (["run", *FAKE, "--draft-len", "auto", "--draft-len-min", "0"], "draft_len_min = 0"),
        (["run", *FAKE, "--draft-len", "0", "--speculate-up-to", "2"], "speculate_up_to = 2"),
        (["run", "--model", "unknown/model", "--draft-len", "auto"], "drafter = None"),
        (["run", *FAKE, "--temperature", "9"], "temperature = 9.0"),
        (["run", *FAKE, "--engine", "vllm"], "engine = 'vllm': use one of redrafter, fake"),
        (["run", *FAKE, "--workload", "nothing.jsonl"], "workload = 'nothing.jsonl'"),
        (["run", *FAKE, "--quantization", "fp8"], "quantization = 'fp8'"),
        (["run", *FAKE, "--quantization", "int3"], "quantization = 'int3'"),
        (["run", "none.yaml"], "CONFIG = 'none.yaml': does not exist"),
        (["run", "--model", "no-such-model"], "model = 'no-such-model': no such directory"),
        (["sweep", "none.yaml"], "SPEC = 'none.yaml': does not exist"),
        (["status", "no-such-run"], "RUN = 'no-such-run'"),
        (["resume", "../../etc"], "RUN = '../../etc'"),
        (["best"], "there is no sweep"),
    ],
)
def test_bad_input_exits_2_names_it_and_leaves_nothing(tuner, tmp_path, arguments, message):
    done = tuner(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    runs = tmp_path / "runs"
    assert not runs.exists() or list(runs.iterdir()) == []


def test_an_empty_workload_is_refused(tuner, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    done = tuner("run", *FAKE, "--workload", str(tmp_path / "empty.jsonl"), "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["kind"] == "BadInput"


def test_nothing_feasible_exits_3(tuner, tmp_path):
    spec = {
        "engine": "fake",
        "model": "fake",
        "space": {"beam_width": [1], "draft_len": [2], "batch_size": [1]},
        "workload": {"requests": 2, "max_new_tokens": 4},
        "limits": {"tpot_ms_p95": 0.001},
        "trials": 1,
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    assert tuner("sweep", str(tmp_path / "spec.yaml")).returncode == 3
    best = tuner("best", "--json")
    assert best.returncode == 3
    assert "no finished config meets the limits" in best.stdout


def test_doctor_says_what_the_host_can_do(tuner):
    report = json.loads(tuner("doctor", "--json").stdout)
    assert report["engines"]["redrafter"]["available"] is True
    assert set(report["engines"]["redrafter"]["precisions"]) == {"fp32", "fp16", "bf16"}
    assert report["gpus"] or report["gpus_missing_because"]


def test_a_full_disk_is_named(tuner, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TUNER_RUNS_DIR", str(tmp_path / "file" / "runs"))
    done = tuner("run", *FAKE)
    assert done.returncode != 0
    assert str(tmp_path / "file") in done.stderr
    assert "Traceback" not in done.stderr
