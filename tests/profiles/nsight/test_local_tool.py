"""Where Nsight's command-line tools are looked for."""

from profiles.nsight.local_tool import find_tool


def install(path):
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_newest_of_the_usual_places_is_found_without_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert find_tool("ncu", opt=tmp_path) is None
    install(tmp_path / "nvidia/nsight-compute/2024.1.1/ncu")
    newest = install(tmp_path / "nvidia/nsight-compute/2025.3.1/ncu")
    assert find_tool("ncu", opt=tmp_path) == newest
    beside = install(tmp_path / "nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys")
    assert find_tool("nsys", opt=tmp_path) == beside
    own = install(tmp_path / "nvidia/nsight-systems/2025.5.1/bin/nsys")
    assert find_tool("nsys", opt=tmp_path) == own


def test_path_comes_first(tmp_path, monkeypatch):
    install(tmp_path / "nvidia/nsight-compute/2025.3.1/ncu")
    own = install(tmp_path / "bin/ncu")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_tool("ncu", opt=tmp_path) == own


def test_a_file_that_cannot_be_run_is_no_tool(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    path = tmp_path / "nvidia/nsight-compute/2025.3.1/ncu"
    install(path)
    path.chmod(0o644)
    assert find_tool("ncu", opt=tmp_path) is None
