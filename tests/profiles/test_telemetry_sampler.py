"""The sampler as a real process. Every wait is for a condition, with a deadline."""

import os
import select
import signal
import subprocess
import sys
import time

import pytest

from profiles.telemetry.parts import read, read_reasons
from profiles.telemetry.sampler import Sampler

DEADLINE_S = 10.0


def ends(pid):
    """Whether the process ends in time; it is not reaped."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], DEADLINE_S)[0])
    finally:
        os.close(descriptor)


def test_samples_around_a_piece_of_work(tmp_path):
    with Sampler(tmp_path, hz=50) as sampler:
        assert sampler.wait_until_ready()
        pid = sampler.pid
        t0_s = time.perf_counter()
        while time.perf_counter() < t0_s + 0.5:
            sum(range(1000))
        t1_s = time.perf_counter()
        nice, own = (os.getpriority(os.PRIO_PROCESS, each) for each in (pid, 0))
        assert nice > own or nice == 19  # there is no lower
    assert sampler.failure is None
    samples = read(tmp_path)
    during = samples[samples["t_s"].between(t0_s, t1_s)]
    assert len(during) > 10
    assert (during["process_rss_bytes"] > 0).all()
    assert abs(samples["unix_s"].iloc[-1] - time.time()) < DEADLINE_S
    assert sampler.log_path.read_text() == ""


def test_rows_and_step_times_lie_on_one_axis():
    """Every process of the host reads one clock, whether as monotonic or as perf_counter."""
    clock = "clock_gettime(CLOCK_MONOTONIC)"
    assert time.get_clock_info("monotonic").implementation == clock
    assert time.get_clock_info("perf_counter").implementation == clock


def test_host_without_gpu_gives_one_notice_and_empty_columns(tmp_path):
    with Sampler(tmp_path, gpus=["GPU-a", "GPU-b"]) as sampler:
        assert sampler.wait_until_ready()
    notices = read_reasons(tmp_path).notices
    if not notices:
        pytest.skip("this host has an NVIDIA driver")
    assert len(notices) == 1
    samples = read(tmp_path)
    assert samples["source"].unique().tolist() == ["host"]
    assert samples["gpu_busy_pct"].isna().all()


def test_work_that_raises_still_ends_the_sampler(tmp_path):
    with pytest.raises(KeyError), Sampler(tmp_path) as sampler:
        pid = sampler.pid
        raise KeyError
    assert ends(pid)


def test_sampler_that_dies_leaves_a_reason_and_the_work_alone(tmp_path):
    with Sampler(tmp_path) as sampler:
        assert sampler.wait_until_ready()
        os.kill(sampler.pid, signal.SIGKILL)
        assert ends(sampler.pid)
    assert "status -9" in sampler.failure
    assert len(read(tmp_path)) >= 1


def test_sampler_that_cannot_start_says_why(tmp_path):
    with Sampler(tmp_path, pid="nobody") as sampler:
        assert not sampler.wait_until_ready()
    assert "invalid int value: 'nobody'" in sampler.failure


def test_sigterm_flushes_and_ends(tmp_path):
    sampler = Sampler(tmp_path)
    sampler.start()
    assert sampler.wait_until_ready()
    os.kill(sampler.pid, signal.SIGTERM)
    assert ends(sampler.pid)
    sampler.stop()
    assert sampler.failure is None


def test_death_of_the_parent_ends_the_sampler(tmp_path):
    script = """
import sys
from pathlib import Path
from profiles.telemetry.sampler import Sampler
sampler = Sampler(Path(sys.argv[1]))
sampler.start()
sampler.wait_until_ready()
print(sampler.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert ends(pid)
    assert len(read(tmp_path)) >= 1
    assert not list(tmp_path.glob(".*.tmp"))


def test_the_sampler_process_imports_nothing_heavy():
    script = """
import sys
import profiles.telemetry.__main__
from profiles.telemetry.parts import _table
_table([{"t_s": 1.0, "unix_s": 1.0, "source": "host"}])
print([name for name in ("pandas", "torch", "pydantic", "optuna", "scipy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("hz", [0, -1, 100.5, float("nan")])
def test_rate_that_cannot_be_kept_is_refused(tmp_path, hz):
    with pytest.raises(ValueError, match="at most 100"):
        Sampler(tmp_path, hz=hz)
