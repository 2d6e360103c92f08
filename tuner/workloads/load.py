"""From a workload's name or path to its prompts."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from tuner.errors import BadInput
from tuner.workloads.builtin_prompts import BUILTIN_CATEGORIES, read_builtin
from tuner.workloads.formats import FORMATS, Contents, Format
from tuner.workloads.rows import Row, split_rows
from tuner.workloads.source_text import decode_source
from tuner.workloads.workload import Workload, hash_content

NO_ACCEPTANCE = (
    "the trace has lengths and arrivals but no text; prompts are random tokens, on which "
    "acceptance says nothing about real use"
)


def load_workload(spec: str) -> Workload:
    """Load `builtin`, `builtin:code,math`, or the file at path `spec`.

    A file's format is told by its content, never by its suffix.

    Raises:
        BadInput: unknown category, missing or unreadable file, a wrong line (named), no prompt.
    """
    family, _, categories = spec.partition(":")
    if family == "builtin":
        wanted = _wanted_categories(spec, categories)
        name = "builtin" if wanted == BUILTIN_CATEGORIES else f"builtin:{','.join(wanted)}"
        return _as_workload(name, Contents(prompts=read_builtin(wanted)))
    path, data = _read_bytes(spec)
    return _as_workload(path.name, _read_contents(path, decode_source(path, data)))


def _wanted_categories(spec: str, categories: str) -> tuple[str, ...]:
    if spec == "builtin":
        return BUILTIN_CATEGORIES
    wanted = tuple(dict.fromkeys(name.strip() for name in categories.split(",")))
    for name in wanted:
        if name not in BUILTIN_CATEGORIES:
            raise BadInput("workload", spec, f"unknown category {name!r}; {_builtin_names()}")
    return wanted


def _builtin_names() -> str:
    names = ", ".join(f"builtin:{category}" for category in BUILTIN_CATEGORIES)
    return f"use a file's path or one of builtin, {names}"


def _read_bytes(spec: str) -> tuple[Path, bytes]:
    try:
        path = Path(spec).expanduser()
        return path, path.read_bytes()
    except FileNotFoundError as error:
        raise BadInput("workload", spec, f"there is no such file; {_builtin_names()}") from error
    except (OSError, RuntimeError, ValueError) as error:  # a folder, an unknown ~user, a NUL
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput("workload", spec, f"cannot be read: {reason}; {_builtin_names()}") from error


def _read_contents(path: Path, text: str) -> Contents:
    if not text.strip():
        raise BadInput("workload", str(path), "is empty; it must hold at least one prompt")
    rows = split_rows(path, text)
    first = next(rows, None)
    if first is None:
        raise BadInput("workload", str(path), f"holds no rows; {_accepted_formats()}")
    contents = _format_of(first).parse(chain([first], rows))
    if not contents.prompts and not contents.shapes:
        left_out = "; ".join(contents.dropped)
        raise BadInput("workload", str(path), f"holds nothing that can be served: {left_out}")
    return contents


def _format_of(row: Row) -> Format:
    for candidate in FORMATS:
        if candidate.recognises(row.fields.keys()):
            return candidate
    raise row.error(f"unrecognised shape; {_accepted_formats()}")


def _accepted_formats() -> str:
    return "accepted are " + "; ".join(f"{format.name}: {format.shape}" for format in FORMATS)


def _as_workload(name: str, contents: Contents) -> Workload:
    return Workload(
        name=name,
        prompts=contents.prompts,
        shapes=contents.shapes,
        gives_acceptance=not contents.shapes,
        reason=NO_ACCEPTANCE if contents.shapes else None,
        dropped=contents.dropped,
        content_hash=hash_content(contents.prompts, contents.shapes),
    )
