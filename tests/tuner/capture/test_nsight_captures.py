"""Trials under nsys and ncu, played by executables that hand out recorded reports."""

from __future__ import annotations

import pytest

from profiles.nsight import read_table
from profiles.records import TrialConfig, WorkloadSpec
from profiles.trial_capture import read_trial_capture
from tests.tuner.capture.fake_nsight import METRICS, REFUSED, FakeTool, record_ncu, record_nsys
from tuner.capture.capture import capture_trial
from tuner.capture.ncu import Ncu
from tuner.capture.nsys import Nsys
from tuner.errors import TunerError
from tuner.runs import create_run

CONFIG = TrialConfig(engine="fake", model="fake", beam_width=2, draft_len=3)
LOAD = WorkloadSpec(requests=2, max_new_tokens=8)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNER_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return create_run("run", {"workload": LOAD.model_dump(mode="json")}, 0, "hash")


def test_an_nsys_capture_is_imported_and_joined_to_its_trial(run, tmp_path):
    nsys = FakeTool(tmp_path / "bin", "nsys", record_nsys(tmp_path / "recorded.sqlite"))
    result, capture = capture_trial(run, 0, CONFIG, Nsys("graph"), steps=3)
    assert result.profiler == "nsys" and result.metrics is not None
    assert result.speedup is None and result.rounds == []
    assert result.energy.energy_mj is None and result.energy.reason == "the trial ran under nsys"
    assert capture.window.steps == 3
    assert capture.report == "capture/report.nsys-rep"
    phases = {phase.phase: phase.kernels for phase in capture.anatomy.phases}
    assert phases == {"draft": 1, "verify": 2}
    assert capture.activity[0].metric == "sm_active_pct"
    assert capture.activity[0].reason == "the telemetry has no GPU"
    assert read_trial_capture(run.trial(0)) == capture
    kernels = read_table(run.path / "imports" / capture.import_id, "kernels")
    assert kernels["duration_ns"].to_pylist() == [60, 100, 50]
    asked, profiled, _export = nsys.calls
    assert asked == "profile --gpu-metrics-devices=help"
    for flag in (
        "--trace=cuda,nvtx",
        "--cuda-graph-trace=graph",
        "--capture-range=cudaProfilerApi",
        "--gpu-metrics-devices=all",
    ):
        assert flag in profiled.split()


def test_gpu_metrics_are_of_the_gpus_that_the_trial_may_use(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    FakeTool(tmp_path, "nsys", None)
    assert "--gpu-metrics-devices=cuda-visible" in Nsys().command(["worker"], tmp_path)


@pytest.mark.parametrize("said", [REFUSED, "", METRICS.replace("\t0: NVIDIA H200", "\tH200")])
def test_without_permission_gpu_metrics_are_not_asked_for(tmp_path, monkeypatch, said):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    FakeTool(tmp_path, "nsys", None, metrics=said)
    command = Nsys().command(["worker"], tmp_path)
    assert not any("gpu-metrics" in part for part in command)
    assert "--cuda-graph-trace=node" in command and command[-1] == "worker"


def test_an_ncu_capture_tells_phases_by_nvtx(run, tmp_path):
    ncu = FakeTool(tmp_path / "bin", "ncu", record_ncu(tmp_path / "recorded.csv"))
    _, capture = capture_trial(run, 0, CONFIG, Ncu(), steps=1)
    kernels = {(k.phase, k.kernel): k.total_ns for k in capture.anatomy.kernels}
    assert kernels == {("verify", "gemm"): 90, ("draft", "gather"): 60}
    assert capture.anatomy.gaps is None and "timeline" in capture.anatomy.missing["gaps"]
    (profiled,) = ncu.calls
    for flag in ("--profile-from-start=off", "--clock-control=none", "--page=raw", "--nvtx"):
        assert flag in profiled.split()
    assert any(part.startswith("--launch-count=") for part in profiled.split())


def test_a_tool_that_writes_nothing_is_said_so_and_the_trial_stays(run, tmp_path):
    FakeTool(tmp_path / "bin", "nsys", None)
    with pytest.raises(TunerError, match="nsys wrote no report: Generated: nothing for people"):
        capture_trial(run, 0, CONFIG, Nsys(), steps=3)
    assert run.trial(0).result().profiler == "nsys"
    assert read_trial_capture(run.trial(0)) is None


def test_a_worker_that_refuses_its_input_ends_with_its_own_words_and_status(run, tmp_path):
    FakeTool(tmp_path / "bin", "nsys", None)
    with pytest.raises(TunerError, match="broke: quantization = 'fp8'") as broken:
        capture_trial(run, 0, CONFIG.model_copy(update={"quantization": "fp8"}), Nsys(), steps=3)
    assert broken.value.exit_code == 2


def test_a_trial_that_fails_has_its_result_and_no_capture(run, tmp_path):
    FakeTool(tmp_path / "bin", "nsys", record_nsys(tmp_path / "recorded.sqlite"))
    crashing = CONFIG.model_copy(update={"model": "crash"})
    result, capture = capture_trial(run, 0, crashing, Nsys(), steps=3)
    assert capture is None and "asked to fail" in result.error
