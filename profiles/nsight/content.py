"""Bytes and text of a file: unpacked if gzipped, bounded, in whatever encoding it has."""

from __future__ import annotations

import zlib
from pathlib import Path

from profiles.errors import UnreadableProfile
from profiles.nsight.reading import Reading

MAX_BYTES = 1 << 30  # after unpacking
_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20
_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"\xef\xbb\xbf": "utf-8"}


def head_of(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of a file, unpacked if it is gzipped.

    Raises:
        UnreadableProfile: missing, a folder, not readable, or empty.
    """
    data, _ = _read(path, size)
    if not data:
        raise UnreadableProfile(path, "the file is empty", "Export or copy it again.")
    return data


def read_text(reading: Reading) -> str:
    """The whole text, with problems noted for what could not be read.

    Raises:
        UnreadableProfile: the file cannot be opened.
    """
    data, problem = _read(reading.path, MAX_BYTES)
    if problem:
        reading.problem(problem)
    text, wrong = decode(data)
    if "\0" in text:
        reading.problem("the file has runs of zero bytes: parts of it were never written")
    if wrong:
        reading.problem(f"{wrong:,} characters are not valid text in the file's encoding")
    return text


def note_open_end(reading: Reading, text: str) -> None:
    """Say when lines of text do not end as a whole file does."""
    if text and text[-1] not in "\n]":
        reading.warn("the last line does not end: the file may be cut short")


def decode(data: bytes) -> tuple[str, int]:
    """Text of UTF-8 or UTF-16 (what PowerShell's `>` writes), and how many characters failed."""
    mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
    encoding = _MARKS.get(mark) or _unmarked_encoding(data[:4096])
    body = data[len(mark) :]
    try:
        return body.decode(encoding), 0
    except UnicodeDecodeError:
        text = body.decode(encoding, "replace")
        return text, text.count("�")


def _unmarked_encoding(head: bytes) -> str:
    if len(head) >= 4 and head[1::2].count(0) > len(head) // 4:
        return "utf-16-le"
    if len(head) >= 4 and head[0::2].count(0) > len(head) // 4:
        return "utf-16-be"
    return "utf-8"


def _read(path: Path, limit: int) -> tuple[bytes, str | None]:
    try:
        with path.open("rb") as file:
            start = file.read(2)
            file.seek(0)
            if start != _GZIP:
                data = file.read(limit + 1)
                return data[:limit], _too_long(len(data), limit)
            return _unpack(file, limit)
    except IsADirectoryError as error:
        raise UnreadableProfile(path, "this is a folder", "Name one file.") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableProfile(
            path, f"it cannot be opened ({reason})", "Check the path and its permissions."
        ) from error


def _unpack(file: object, limit: int) -> tuple[bytes, str | None]:
    """Unpack gzip members up to `limit` bytes, and keep what came before any damage."""
    out = bytearray()
    stream = zlib.decompressobj(wbits=31)
    waiting = b""
    try:
        while len(out) <= limit:
            waiting = waiting or file.read(_BLOCK)  # type: ignore[attr-defined]
            if not waiting:
                cut = None if stream.eof else "the gzip stream is cut short"
                return bytes(out), cut
            if stream.eof:
                stream = zlib.decompressobj(wbits=31)
            out += stream.decompress(waiting, limit + 1 - len(out))
            waiting = stream.unused_data if stream.eof else stream.unconsumed_tail
    except zlib.error as error:
        return bytes(out[:limit]), f"the gzip stream is damaged ({error})"
    return bytes(out[:limit]), _too_long(len(out), limit)


def _too_long(size: int, limit: int) -> str | None:
    return f"only the first {limit:,} bytes were read" if size > limit else None
