import gzip
import hashlib

import pytest
from nsight_fixtures import KERNEL_TIME_NS, full_export, make_all
from nsight_texts import STATS_CSV, kineto, ncu_raw

from profiles.nsight import (
    SCHEMAS,
    UnreadableProfile,
    list_imports,
    read_capture,
    read_summary,
    read_table,
    write_import,
)
from profiles.nsight.detect import detect


def test_every_format_is_written_and_read_back(tmp_path):
    imports = tmp_path / "imports"
    for path in make_all(tmp_path).values():
        folder = write_import(imports, path)
        capture = read_capture(path)
        assert folder == imports / hashlib.sha256(path.read_bytes()).hexdigest()
        assert read_summary(folder) == capture.summary
        for name, schema in SCHEMAS.items():
            table = read_table(folder, name)
            assert table.schema == schema
            assert table == capture.tables.get(name, schema.empty_table())
    assert len(list_imports(imports)) == 8


def test_units_stand_in_the_column_names():
    for schema in SCHEMAS.values():
        for field in schema:
            if field.name.startswith(("start", "end", "duration", "timestamp", "total")):
                assert field.name.endswith(("_ns", "_bytes"))


def test_an_import_again_replaces_its_own_tables(tmp_path):
    path = full_export(tmp_path / "report.sqlite")
    folder = write_import(tmp_path / "imports", path)
    (folder / "launch_metrics.parquet").write_bytes(b"left by an older version")
    assert write_import(tmp_path / "imports", path) == folder
    assert not (folder / "launch_metrics.parquet").exists()
    assert read_summary(folder).kernel_time_ns == KERNEL_TIME_NS


def test_an_unreadable_file_leaves_nothing(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("buy milk")
    with pytest.raises(UnreadableProfile):
        write_import(tmp_path / "imports", path)
    assert not (tmp_path / "imports").exists()


def test_progress_is_told(tmp_path):
    told = []
    path = full_export(tmp_path / "report.sqlite")
    write_import(
        tmp_path / "imports", path, progress=lambda what, share: told.append((what, share))
    )
    assert {"totals", "writing kernels"} <= {what for what, _ in told}
    assert all(0 <= share <= 1 for _, share in told)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (STATS_CSV.encode(), "nsys_stats"),
        (gzip.compress(STATS_CSV.encode()), "nsys_stats"),
        (ncu_raw().encode("utf-16"), "ncu_csv"),
        (kineto().encode(), "kineto"),
        (gzip.compress(kineto().encode()), "kineto"),
        (b"NVIDIA Tegra Profiler Report v2", "nsys_report"),
        (b"NVR\0\1\2", "ncu_report"),
        (b"SQLite format 3\0", "nsys_sqlite"),
    ],
)
def test_the_content_decides_not_the_suffix(tmp_path, data, expected):
    path = tmp_path / "trace.sqlite.json.csv"
    path.write_bytes(data)
    assert detect(path) == expected


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        (b"PK\x03\x04...", "Unpack"),
        (b"\x80\x04\x95", "never opened"),
        (b"\x89HDF\r\n", "nsys export --type sqlite"),
        (b"\x00\x01\x02\x03" * 50, "no profile that we know"),
        (b"hello, world\n", "no profile that we know"),
    ],
)
def test_other_files_are_refused_with_a_remedy(tmp_path, data, said):
    path = tmp_path / "report.sqlite"
    path.write_bytes(data)
    with pytest.raises(UnreadableProfile, match=said):
        read_capture(path)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(UnreadableProfile, match="cannot be opened"):
        read_capture(tmp_path / "gone.sqlite")
    with pytest.raises(UnreadableProfile, match="a folder"):
        read_capture(tmp_path)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a script under a tool's name on an otherwise small PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def write(tool, script):
        (folder / tool).write_text(f"#!/bin/sh\n{script}\n")
        (folder / tool).chmod(0o755)

    return write


@pytest.fixture
def systems_report(tmp_path):
    path = tmp_path / "run 1.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report ...")
    return path


@pytest.fixture
def compute_report(tmp_path):
    path = tmp_path / "run 1.ncu-rep"
    path.write_bytes(b"NVR\0 ...")
    return path


def test_reports_without_their_tool_say_how_to_convert_them(
    install, systems_report, compute_report
):
    with pytest.raises(UnreadableProfile, match="nsys export --type sqlite"):
        read_capture(systems_report)
    with pytest.raises(UnreadableProfile, match="ncu --import"):
        read_capture(compute_report)


def test_a_local_nsys_exports_its_report(install, systems_report, tmp_path):
    exported = full_export(tmp_path / "exported.sqlite")
    install("nsys", f'test "$3" = sqlite -a -f "$8" && cp "{exported}" "$5"')
    summary = read_capture(systems_report).summary
    assert (summary.format, summary.file_name) == ("nsys_report", "run 1.nsys-rep")
    assert summary.kernel_time_ns == KERNEL_TIME_NS


def test_a_local_ncu_prints_its_report(install, compute_report, tmp_path):
    (tmp_path / "printed.csv").write_text(ncu_raw())
    install("ncu", f'test "$LC_ALL" = C -a -f "$2" && cat "{tmp_path}/printed.csv"')
    summary = read_capture(compute_report).summary
    assert (summary.format, summary.profiled_launches) == ("ncu_report", 2)


def test_a_tool_that_fails_is_quoted(install, systems_report):
    install("nsys", "echo 'Unsupported report version 2027' >&2; exit 1")
    with pytest.raises(UnreadableProfile, match="Unsupported report version 2027"):
        read_capture(systems_report)


def test_a_tool_that_writes_nothing(install, systems_report):
    install("nsys", "exit 0")
    with pytest.raises(UnreadableProfile, match="wrote no export"):
        read_capture(systems_report)
