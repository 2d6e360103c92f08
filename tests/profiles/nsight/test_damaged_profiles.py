"""Damaged files give a result, a part that says so, or a clear error: never a crash or a zero."""

import contextlib
import gzip
import random
import re
import sqlite3
import time

import pytest
from nsight_fixtures import make_all

from profiles.nsight import UnreadableProfile, read_capture, read_summary, write_import

VARIANTS = 500
SECONDS_EACH = 5.0
NUMBERS = ("kernels", "kernel_time_ns", "copies", "api_calls", "ranges", "gpu_metric_rows")
MARKUP = ["<script>alert(1)</script>", "[x](javascript:1)", "';DROP TABLE x;--", "\u202e%s{}"]
ENCODINGS = ["utf-16", "utf-16-le", "utf-8-sig", "cp500", "utf-32", "utf-7"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One good file of every kind, its bytes, and what it holds."""
    files = make_all(tmp_path_factory.mktemp("whole"))
    return {name: (path.read_bytes(), read_capture(path)) for name, path in files.items()}


def truncated(chance, data, _path):
    return data[: chance.randrange(len(data))]


def flipped(chance, data, _path):
    changed = bytearray(data)
    for _ in range(chance.choice([1, 3, 20, 200])):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def hole(chance, data, _path):
    """A block of the file was never written."""
    start = chance.randrange(len(data))
    length = min(len(data) - start, chance.choice([16, 512, 4096]))
    return data[:start] + bytes(length) + data[start + length :]


def repacked(data, change):
    """Change the text of a file that may be gzipped."""
    if data[:2] == b"\x1f\x8b":
        return gzip.compress(change(gzip.decompress(data).decode()).encode(), mtime=0)
    return change(data.decode()).encode("utf-8", "surrogatepass")


def column_dropped(chance, data, path):
    if path.suffix == ".sqlite":
        return altered(chance, data, path, 'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    return repacked(data, lambda text: re.sub(chance.choice(words_of(text)), "", text))


def column_renamed(chance, data, path):
    if path.suffix == ".sqlite":
        change = chance.choice(
            [
                'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "other"',
                'ALTER TABLE "{table}" RENAME TO "OTHER"',
                'UPDATE "{table}" SET "{column}" = NULL',
            ]
        )
        return altered(chance, data, path, change)
    word = chance.choice(words_of(data.decode("utf-8", "replace")) or ["x"])
    return repacked(data, lambda text: text.replace(word, "other"))


def encoded(chance, data, path):
    if path.suffix in (".sqlite", ".gz"):
        return b"\xef\xbb\xbf" + data
    return data.decode().encode(chance.choice(ENCODINGS), "replace")


def separators_swapped(chance, data, path):
    if path.suffix == ".sqlite":
        return altered(chance, data, path, 'UPDATE "{table}" SET "{column}" = "{column}" || \',\'')
    old, new = chance.choice([(",", ";"), (",", "\t"), (",", "."), (".", ","), (":", ";")])
    return repacked(data, lambda text: text.replace(old, new))


def huge_numbers(chance, data, path):
    big = chance.choice(["9223372036854775807", "-9223372036854775808", "1e308", "1e400"])
    if path.suffix == ".sqlite":
        change = f'UPDATE "{{table}}" SET "{{column}}" = {big} WHERE rowid % 2'
        return altered(chance, data, path, change)
    big = chance.choice([big, "9" * 400, "9" * 5000])
    return repacked(data, lambda text: re.sub(r"\b\d{2,}\b", big, text, count=chance.randrange(9)))


def markup(chance, data, path):
    text = chance.choice(MARKUP)
    if path.suffix == ".sqlite":
        quoted = text.replace("'", "''").replace("{", "{{").replace("}", "}}")
        return altered(chance, data, path, f"UPDATE StringIds SET value = '{quoted}'")
    return repacked(data, lambda whole: re.sub("softmax|gemm", lambda _: text, whole))


DAMAGES = [
    truncated,
    flipped,
    hole,
    column_dropped,
    column_renamed,
    encoded,
    separators_swapped,
    huge_numbers,
    markup,
]


def altered(chance, data, path, change):
    """Apply SQL to one column of one table."""
    path.write_bytes(data)
    connection = sqlite3.connect(path)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
    table = chance.choice(sorted(tables))
    columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    statement = change.format(table=table, column=chance.choice(columns))
    with contextlib.suppress(sqlite3.Error):  # a primary key cannot be dropped: no damage then
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path.read_bytes()


def words_of(text):
    return re.findall(r"[A-Za-z]{4,}", text[:2000])


@pytest.mark.parametrize("part", range(10))
def test_damaged_variants(part, whole, tmp_path):
    for number in range(part, VARIANTS, 10):
        chance = random.Random(number)
        name = sorted(whole)[number % len(whole)]
        damage = DAMAGES[(number // len(whole)) % len(DAMAGES)]
        path = tmp_path / f"{number}-{name}"
        data, truth = whole[name]
        path.write_bytes(damage(chance, data, path))
        check(path, truth, f"variant {number}: {damage.__name__} of {name}")


def check(path, truth, which):
    begun = time.monotonic()
    try:
        capture = read_capture(path)
    except UnreadableProfile as error:
        assert error.reason and error.remedy and error.path == path, which
        capture = None
    assert time.monotonic() - begun < SECONDS_EACH, which
    if capture is not None:
        no_silent_zero(capture, truth, which)


def no_silent_zero(capture, truth, which):
    summary = capture.summary
    for number in NUMBERS:
        value = getattr(summary, number)
        assert value != 0 or getattr(truth.summary, number) == 0, f"{which}: {number} is 0"
        assert value is not None or summary.missing[number], f"{which}: {number} has no reason"
    if summary.gpu_busy is None:
        assert summary.missing["gpu_busy"], which
    if summary.state == "empty":
        assert summary.headline.startswith("empty capture"), which
    if summary.state == "partial":
        assert any(note.level == "problem" for note in summary.notes), which


@pytest.mark.parametrize("name", ["export.sqlite", "raw.csv", "trace.json.gz"])
def test_a_file_cut_anywhere_never_passes_for_whole(name, whole, tmp_path):
    """Fewer kernels than there were, and nothing said, would be the worst outcome."""
    data, truth = whole[name]
    path = tmp_path / name
    for length in range(1, len(data) - 1, max(1, len(data) // 60)):
        path.write_bytes(data[:length])
        try:
            summary = read_capture(path).summary
        except UnreadableProfile:
            continue
        rows_end = data[:length].endswith(b"\n")
        if summary.kernels != truth.summary.kernels and not rows_end:
            assert summary.state != "complete" or summary.notes, length


def test_markup_reaches_the_tables_as_plain_text(whole, tmp_path):
    data, _ = whole["export.sqlite"]
    path = tmp_path / "export.sqlite"
    path.write_bytes(markup(random.Random(1), data, path))
    names = read_capture(path).tables["kernels"]["name"].unique().to_pylist()
    assert names == [random.Random(1).choice(MARKUP)]


def test_damaged_captures_are_written_and_read_back(whole, tmp_path):
    for number, (name, (data, _)) in enumerate(sorted(whole.items())):
        path = tmp_path / name
        path.write_bytes(flipped(random.Random(number + 1000), data, path))
        try:
            folder = write_import(tmp_path / "imports", path)
        except UnreadableProfile:
            continue
        assert read_summary(folder) == read_capture(path).summary
