"""The text of a workload file: plain or gzipped, UTF-8, with or without a byte order mark."""

from __future__ import annotations

import codecs
import gzip
import zlib
from pathlib import Path

from tuner.errors import BadInput

GZIP_MAGIC = b"\x1f\x8b"
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def decode_source(path: Path, data: bytes) -> str:
    """Return the text of `data`, the content of `path`.

    Raises:
        BadInput: a torn .gz, or not UTF-8 (with the line of the first wrong byte).
    """
    if data.startswith(GZIP_MAGIC):
        data = _decompress(path, data)
    return _decode(path, data)


def _decompress(path: Path, data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(
            "workload", str(path), f"the .gz is torn ({error}); copy or download it again"
        ) from error


def _decode(path: Path, data: bytes) -> str:
    if data.startswith(UTF16_MARKS):
        raise BadInput("workload", f"{path} line 1", "is UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(
            "workload",
            f"{path} line {line}",
            f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8",
        ) from error
