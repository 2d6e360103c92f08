import os
import subprocess
import sys

import psutil
import pytest

from profiles.telemetry.counters import Unavailable
from profiles.telemetry.host import Host
from profiles.telemetry.rapl import Rapl


def package(root, name, energy_uj, range_uj=1_000_000):
    folder = root / name
    folder.mkdir()
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return folder / "energy_uj"


def test_rapl_sums_packages_and_undoes_wraps(tmp_path):
    first = package(tmp_path, "intel-rapl:0", 990_000)
    second = package(tmp_path, "intel-rapl:1", 100_000)
    package(tmp_path, "intel-rapl:0:0", 5)  # a part of package 0
    package(tmp_path, "intel-rapl", 5)
    rapl = Rapl(tmp_path)
    assert rapl.energy_mj() == 0
    second.write_text("107000")
    assert rapl.energy_mj() == 7
    first.write_text("9999")  # 10000 to the end of the range, one on, 9999 more
    assert rapl.energy_mj() == 27


def test_rapl_that_is_not_there_says_so(tmp_path):
    with pytest.raises(Unavailable, match="no RAPL counters") as caught:
        Rapl(tmp_path).energy_mj()
    assert caught.value.for_good


def test_rapl_that_vanishes_says_so(tmp_path):
    path = package(tmp_path, "intel-rapl:0", 1)
    rapl = Rapl(tmp_path)
    path.unlink()
    with pytest.raises(Unavailable, match="cannot be read"):
        rapl.energy_mj()


def test_rapl_for_root_only_says_so(tmp_path):
    (tmp_path / "intel-rapl:0").mkdir()
    (tmp_path / "intel-rapl:0" / "max_energy_range_uj").write_text("1")
    (tmp_path / "intel-rapl:0" / "energy_uj").mkdir()  # root reads anything but a folder
    with pytest.raises(Unavailable, match="needs root"):
        Rapl(tmp_path).energy_mj()


def test_host_and_process_are_sampled(tmp_path):
    package(tmp_path, "intel-rapl:0", 1)
    host = Host(os.getpid(), Rapl(tmp_path))
    host.sample(0.0)
    values = host.sample(1.0)
    assert 0 < values["host_memory_used_bytes"] <= psutil.virtual_memory().total
    assert values["process_rss_bytes"] > 1_000_000
    assert values["process_cpu_pct"] >= 0
    assert values["cpu_energy_mj"] == 0
    assert set(host.missing()) <= {"host_cpu_pct"}  # no tick of the kernel may have passed
    host.close()


class FakeProc:
    """A folder like /proc, rewritten in place."""

    def __init__(self, root):
        self.root = root
        (root / "7").mkdir()
        self.write("cpu  1000 0 200 8000 300 0 0 0 50 0", utime=100, stime=20)

    def write(self, cpu, utime, stime):
        (self.root / "stat").write_text(f"{cpu}\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5 4\n")
        (self.root / "meminfo").write_text(
            "MemTotal:       8000 kB\nMemFree:        1000 kB\nMemAvailable:   3000 kB\n"
        )
        fields = [0] * 10 + [utime, stime] + [0] * 8 + [25, 0, 0]
        (self.root / "7" / "stat").write_text(f"7 (a) b (c) S {' '.join(map(str, fields))}\n")


def test_numbers_of_proc(tmp_path):
    proc = FakeProc(tmp_path)
    host = Host(7, Rapl(tmp_path), tmp_path)
    host.sample(0.0)
    assert "no time" in host.missing()["host_cpu_pct"].reason
    proc.write("cpu  1010 0 220 8050 320 0 0 0 60 0", utime=130, stime=30)
    values = host.sample(0.5)
    assert values["host_cpu_pct"] == 30.0  # of 100 ticks 50 idle and 20 waiting for a disk
    assert values["host_memory_used_bytes"] == 5000 * 1024
    ticks_per_s, page_bytes = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert values["process_cpu_pct"] == pytest.approx(100 * 40 / ticks_per_s / 0.5)
    assert values["process_rss_bytes"] == 25 * page_bytes
    host.close()


def test_slow_counters_repeat_between_refreshes():
    host = Host(os.getpid())
    assert host.sample(0.0)["process_cpu_pct"] is None  # a rate needs two readings
    assert host.sample(0.1)["process_cpu_pct"] is None
    assert host.sample(0.5)["process_cpu_pct"] is not None


def test_children_are_part_of_the_watched_process_until_it_ends(tmp_path):
    script = """
import subprocess, sys
child = "import sys; print('up', flush=True); sys.stdin.read()"
subprocess.run([sys.executable, "-c", child])
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    parent.stdout.readline()  # printed by the child
    host = Host(parent.pid)
    both = host.sample(0.0)["process_rss_bytes"]
    alone = psutil.Process(parent.pid).memory_info().rss
    child = sum(p.memory_info().rss for p in psutil.Process(parent.pid).children())
    assert child > 0
    assert both == pytest.approx(alone + child, rel=0.05)
    parent.stdin.close()
    os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
    values = host.sample(1.0)  # a zombie now
    assert values["process_rss_bytes"] is None
    assert "has ended" in host.missing()["process_rss_bytes"].reason
    parent.wait()
    parent.stdout.close()
    assert host.sample(2.0)["process_rss_bytes"] is None


def test_a_process_that_never_was_is_missing():
    host = Host(2**22 + 1)
    values = host.sample(0.0)
    assert values["process_rss_bytes"] is None
    assert values["host_memory_used_bytes"] > 0
