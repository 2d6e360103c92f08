import subprocess
import sys

import pytest
from fake_nvml import FakeNvml

from profiles.telemetry import once
from profiles.telemetry.columns import COLUMNS, GPU_NAMES
from profiles.telemetry.counters import Unavailable
from profiles.telemetry.gpu import Gpu
from profiles.telemetry.gpu_processes import GpuProcesses


class FakeTime:
    def __init__(self):
        self.now = 5.0

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_every_counter_has_a_line_with_value_or_reason():
    nvml, time = FakeNvml(refuse={"nvmlDeviceGetPowerUsage": 4}), FakeTime()
    gpu = Gpu(nvml, "GPU-a", GpuProcesses(nvml, lambda: {100}, True))
    said = once.lines([gpu], time.clock, time.sleep)
    assert said[0].startswith("GPU-a: all of it read in 0.0 ms")
    assert [line.split()[0] for line in said[1:]] == list(GPU_NAMES)
    by_name = {line.split()[0]: " ".join(line.split()[1:]) for line in said[1:]}
    assert by_name["sm_active_pct"] == "50 %"
    assert by_name["power_mw"].startswith("missing: no permission")
    assert [n for n, text in by_name.items() if "missing" in text] == ["power_mw"]


def test_all_gpus_are_found_or_the_reason_is_given():
    assert once.all_uuids(FakeNvml(["GPU-a", "GPU-b"])) == ["GPU-a", "GPU-b"]
    with pytest.raises(Unavailable, match="NVML error 15"):
        once.all_uuids(FakeNvml(refuse={"nvmlDeviceGetUUID": 15}))


def test_command_prints_the_host_whatever_the_gpu_does():
    done = subprocess.run(
        [sys.executable, "-m", "profiles.telemetry", "--once"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "host_memory_used_bytes" in done.stdout
    assert all(c.name in done.stdout for c in COLUMNS if c.name.startswith("process_"))
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["--once", "--hz", "101"], "at most 100 samples"), ([], "--out")],
)
def test_bad_arguments_are_named(arguments, complaint):
    done = subprocess.run(
        [sys.executable, "-m", "profiles.telemetry", *arguments],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert complaint in done.stderr
