import pyarrow.parquet as pq
import pytest

from profiles.telemetry.columns import COLUMNS, HOST
from profiles.telemetry.counters import Missing
from profiles.telemetry.loop import Recorder, run_loop
from profiles.telemetry.parts import PartWriter, read, read_reasons


class FakeSource:
    """Counts its samples; `lost` adds a reason."""

    def __init__(self, name):
        self.name = name
        self.samples = 0
        self.fulls = []
        self.lost = {}
        self.closed = False

    def sample(self, t_s, full=False):
        self.samples += 1
        self.fulls.append(full)
        return {"energy_mj": self.samples}

    def missing(self):
        return self.lost

    def close(self):
        self.closed = True


class FakeTime:
    """A clock that only waiting moves, by as much as asked plus `late` seconds."""

    def __init__(self, ticks, late=()):
        self.now = 100.0
        self.waits = []
        self.ticks = ticks
        self.late = dict(late)

    def clock(self):
        return self.now

    def wait(self, seconds):
        self.waits.append(seconds)
        self.now += seconds + self.late.get(len(self.waits), 0.0)
        return len(self.waits) == self.ticks


@pytest.fixture
def source():
    return FakeSource("GPU-a")


def run(tmp_path, source, time, hz=10.0, **options):
    run_loop(Recorder(tmp_path, [source], []), hz, time.wait, time.clock, **options)


def test_late_ticks_do_not_shift_later_ones(tmp_path, source):
    time = FakeTime(ticks=4, late={2: 0.03})
    run(tmp_path, source, time)
    assert time.waits == pytest.approx([0.1, 0.1, 0.07, 0.1])
    assert source.fulls == [False, False, False, False, True]


def test_ticks_missed_in_a_stall_are_skipped(tmp_path, source):
    time = FakeTime(ticks=4, late={1: 0.55})  # wakes at 0.65 instead of 0.1
    run(tmp_path, source, time)
    assert time.waits == pytest.approx([0.1, 0.05, 0.1, 0.1])
    assert source.samples == 5


def test_parts_are_written_on_the_way_and_at_the_end(tmp_path, source):
    run(tmp_path, source, FakeTime(ticks=10), flush_every_s=0.35)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "part-000000.parquet", "part-000001.parquet", "part-000002.parquet", "reasons.json",
    ]  # fmt: skip
    samples = read(tmp_path)
    assert samples["energy_mj"].tolist() == list(range(1, 12))
    assert samples["source"].unique().tolist() == ["GPU-a"]
    assert list(samples.columns) == [column.name for column in COLUMNS]
    assert samples["power_mw"].isna().all()
    assert samples["t_s"].is_monotonic_increasing
    assert source.closed


def test_reasons_come_back(tmp_path, source):
    recorder = Recorder(tmp_path, [source, FakeSource(HOST)], ["No GPU counters: none"])
    recorder.flush()
    assert read_reasons(tmp_path).columns == {"GPU-a": {}, HOST: {}}
    source.lost = {"power_mw": Missing("the GPU is lost", 12.5)}
    recorder.flush()
    reasons = read_reasons(tmp_path)
    assert reasons.notices == ["No GPU counters: none"]
    assert reasons.columns["GPU-a"]["power_mw"] == Missing("the GPU is lost", 12.5)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"notices": []}', '{"columns": 1}'])
def test_missing_or_torn_reasons_are_empty(tmp_path, text):
    (tmp_path / "reasons.json").write_text(text)
    assert read_reasons(tmp_path).notices == []
    assert read_reasons(tmp_path / "none").columns == {}


def test_an_empty_folder_reads_as_no_samples(tmp_path):
    assert read(tmp_path).empty
    assert "energy_mj" in read(tmp_path / "none")


def test_a_torn_part_is_a_gap_and_a_temporary_is_no_part(tmp_path):
    for number in range(3):
        PartWriter(tmp_path).write([{"t_s": float(number), "unix_s": 0.0, "source": HOST}])
    path = tmp_path / "part-000001.parquet"
    (tmp_path / ".part-000003.parquet.x.tmp").write_bytes(path.read_bytes()[:50])
    path.write_bytes(path.read_bytes()[:50])
    assert read(tmp_path)["t_s"].tolist() == [0.0, 2.0]


def test_a_part_holds_only_what_was_measured(tmp_path):
    rows = [
        {"t_s": 1.0, "unix_s": 0.0, "source": HOST, "host_cpu_pct": 5.0, "power_mw": None},
        {"t_s": 1.0, "unix_s": 0.0, "source": "GPU-ä", "gpu_processes": 0},
    ]
    PartWriter(tmp_path).write(rows)
    (path,) = tmp_path.iterdir()
    names = ["t_s", "unix_s", "source", "gpu_processes", "host_cpu_pct"]
    assert pq.read_schema(path).names == names
    samples = read(tmp_path)
    assert samples["source"].tolist() == [HOST, "GPU-ä"]
    assert samples["gpu_processes"].isna().tolist() == [True, False]
    assert samples["host_cpu_pct"].isna().tolist() == [False, True]
    assert samples["power_mw"].isna().all()


def test_big_counters_stay_exact(tmp_path):
    row = {"t_s": 0.0, "unix_s": 0.0, "source": "GPU-a", "energy_mj": 2**53 + 1}
    PartWriter(tmp_path).write([row])
    assert read(tmp_path)["energy_mj"].tolist() == [2**53 + 1]
