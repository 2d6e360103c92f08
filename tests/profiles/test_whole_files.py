import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from profiles.errors import StorageError
from profiles.files import read_json, storage_error, write_bytes, write_json, write_text


def test_writes_replace_whole_files(tmp_path):
    write_text(tmp_path / "a", "old")
    write_text(tmp_path / "a", "naïve")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "naïve"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_json_comes_back(tmp_path):
    write_json(tmp_path / "a.json", {"x": [1, None, "é"]})
    assert read_json(tmp_path / "a.json") == {"x": [1, None, "é"]}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_refuses_what_is_not_json(tmp_path, value):
    write_json(tmp_path / "a.json", 1)
    with pytest.raises(ValueError):
        write_json(tmp_path / "a.json", {"x": value})
    assert read_json(tmp_path / "a.json") == 1


@pytest.mark.parametrize("text", ["NaN", '{"x": Infinity}', "{"])
def test_reading_refuses_loose_json(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError):
        read_json(tmp_path / "a.json")


def test_full_disk_is_said_in_words():
    """/dev/full accepts an open and answers every write with ENOSPC."""
    try:
        with Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")
    except OSError as error:
        assert error.errno == errno.ENOSPC
        said = storage_error(Path("runs/a"), error)
    assert said.path == Path("runs/a")
    assert "no disk space left" in str(said)
    assert "Free some space" in said.remedy


def test_failed_write_leaves_the_old_file_and_no_temporary(tmp_path):
    """A limit on file size makes the write itself fail, in a child so that it stays there."""
    write_text(tmp_path / "a", "old")
    script = """
import resource, signal, sys
from pathlib import Path
from profiles.errors import StorageError
from profiles.files import write_bytes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_bytes(Path(sys.argv[1]), b"x" * 100_000)
except StorageError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a")], capture_output=True, text=True
    )
    assert "File too large" in done.stdout, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_missing_folder_names_path_and_remedy(tmp_path):
    with pytest.raises(StorageError, match="Create the folder") as caught:
        write_bytes(tmp_path / "no" / "a", b"")
    assert caught.value.path == tmp_path / "no" / "a"


def test_sigkill_in_the_middle_leaves_no_half_written_file(tmp_path):
    """A child rewrites one file without end and is killed: what is there is whole."""
    script = """
import sys
from pathlib import Path
from profiles.files import write_json
write_json(Path(sys.argv[1]), list(range(50_000)))
print("first", flush=True)
while True:
    write_json(Path(sys.argv[1]), list(range(50_000)))
"""
    path = tmp_path / "a.json"
    child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    while not list(tmp_path.glob(".a.json.*.tmp")):  # the next write has begun
        assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert read_json(path) == list(range(50_000))
