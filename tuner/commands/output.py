"""What every command shares: one JSON object or readable lines, and honest exit codes."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ParamSpec

import typer

from profiles.errors import ProfilesError
from tuner.errors import TunerError

P = ParamSpec("P")

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run id, or `latest`.")]


def reports_errors(command: Callable[P, None]) -> Callable[P, None]:
    """End with the error's own exit code and one line on stderr; JSON too when it was asked for."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (TunerError, ProfilesError) as error:
            code = error.exit_code if isinstance(error, TunerError) else 1
            if kwargs.get("json_output"):
                print_json({"error": str(error), "kind": type(error).__name__})
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(code) from error

    return wrapped


def print_json(value: Mapping[str, Any]) -> None:
    """Print strict JSON."""
    print(json.dumps(value, indent=2, allow_nan=False, default=str))


def print_fields(value: Mapping[str, Any], indent: int = 0) -> None:
    """Print fields as aligned lines; nested objects are indented."""
    width = max((len(name) for name in value), default=0)
    for name, item in value.items():
        if isinstance(item, dict) and item:
            print(f"{'':{indent}}{name}")
            print_fields(item, indent + 2)
        else:
            print(f"{'':{indent}}{name:<{width}}  {_readable(item)}")


def _readable(item: Any) -> str:
    if item is None:
        return "n/a"
    if isinstance(item, float):
        return f"{item:.4g}"
    if isinstance(item, list):
        return ", ".join(_readable(part) for part in item) or "none"
    return str(item)
