import os
import subprocess

import pytest
from fake_nvml import FakeNvml

from profiles.hardware import fingerprint, git_sha, versions


def test_fingerprint_names_the_gpus():
    hardware = fingerprint(FakeNvml(uuids=["GPU-a", "GPU-b"]))
    assert hardware.gpu_reason is None
    assert [gpu.uuid for gpu in hardware.gpus] == ["GPU-a", "GPU-b"]
    assert hardware.gpus[0].name == "NVIDIA H100"
    assert hardware.gpus[0].memory_total_bytes == 80 << 30
    assert hardware.gpus[0].driver == "580.1"
    assert hardware.cores == len(os.sched_getaffinity(0))
    assert hardware.memory_total_bytes > 0


@pytest.mark.parametrize(
    ("code", "reason"), [(12, "no NVIDIA driver library"), (9, "not loaded"), (18, "reboot")]
)
def test_fingerprint_without_a_driver_says_why(code, reason):
    hardware = fingerprint(FakeNvml(refuse={"nvmlInit": code}))
    assert hardware.gpus == []
    assert reason in hardware.gpu_reason


def test_unified_memory_has_no_total_of_its_own():
    hardware = fingerprint(FakeNvml(refuse={"nvmlDeviceGetMemoryInfo": 3}))
    assert hardware.gpus[0].memory_total_bytes is None


def test_a_driver_without_gpus_says_so():
    assert fingerprint(FakeNvml(uuids=[])).gpu_reason == "the driver sees no GPU"


def test_cpu_model_is_read_or_guessed(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Test CPU @ 1: x\n")
    assert fingerprint(FakeNvml(), tmp_path / "cpuinfo").cpu == "Test CPU @ 1: x"
    assert fingerprint(FakeNvml(), tmp_path / "none").cpu


def test_versions_come_without_importing():
    found = versions()
    assert found["python"].startswith("3.")
    assert found["numpy"]
    assert "no-such-package" not in found


def test_git_sha_of_a_checkout_and_of_none(tmp_path):
    def git(*arguments):
        done = subprocess.run(
            ["git", "-c", "user.name=x", "-c", "user.email=x@x", *arguments],
            cwd=tmp_path, check=True, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.strip()

    assert git_sha(tmp_path) is None
    git("init", "-q")
    assert git_sha(tmp_path) is None
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_text("1")
    git("add", ".")
    git("commit", "-qm", "x")
    sha = git("rev-parse", "HEAD")
    assert git_sha(tmp_path) == sha
    assert git_sha(tmp_path / "sub") is None
    (tmp_path / "sub" / "a").write_text("2")
    assert git_sha(tmp_path) == f"{sha}-dirty"
