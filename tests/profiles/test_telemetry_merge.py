"""Parts of a finished trial become one file; whatever interrupts that, each sample counts once."""

from __future__ import annotations

import shutil

import pytest

from profiles.telemetry.merge import merge_parts
from profiles.telemetry.parts import PartWriter, part_paths, read


@pytest.fixture
def folder(tmp_path):
    writer = PartWriter(tmp_path)
    for t_s in (3.0, 1.0, 2.0):
        writer.write([{"t_s": t_s, "unix_s": t_s, "source": "host", "host_cpu_pct": 10 * t_s}])
    return tmp_path


def cpu(folder):
    return read(folder)["host_cpu_pct"].tolist()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_merging_keeps_every_sample_in_one_file(folder):
    before = read(folder)
    merge_parts(folder)
    assert names(folder) == ["merged-000002.parquet", "overview-000002.parquet"]
    assert read(folder).equals(before)


def test_a_later_sampler_writes_behind_what_was_merged_and_is_merged_too(folder):
    merge_parts(folder)
    PartWriter(folder).write([{"t_s": 4.0, "unix_s": 4.0, "source": "host", "host_cpu_pct": 40.0}])
    assert [p.name for p in part_paths(folder)] == ["merged-000002.parquet", "part-000003.parquet"]
    assert cpu(folder) == [10, 20, 30, 40]
    merge_parts(folder)
    assert names(folder) == ["merged-000003.parquet", "overview-000003.parquet"]
    assert cpu(folder) == [10, 20, 30, 40]


def test_parts_left_behind_by_a_kill_do_not_count_twice(folder, tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    merge_parts(folder)
    shutil.copy(folder / "merged-000002.parquet", copy)
    assert cpu(copy) == [10, 20, 30]


def test_a_torn_part_does_not_stop_the_others(folder):
    (folder / "part-000001.parquet").write_bytes(b"PAR1 torn")
    merge_parts(folder)
    assert cpu(folder) == [20, 30]


def test_nothing_to_merge(tmp_path):
    merge_parts(tmp_path)
    assert list(tmp_path.iterdir()) == []
