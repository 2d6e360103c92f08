"""`tuner import`: read an Nsight or PyTorch profile and keep it with a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tuner.commands.output import JsonFlag, print_fields, print_json, reports_errors

_HIDDEN = {"notes", "missing", "gpu_busy", "gpu_metrics", "gpus"}  # shown in words instead


@reports_errors
def import_profile(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Nsight Systems .sqlite, .nsys-rep or `nsys stats` output; Nsight Compute CSV or "
            ".ncu-rep; PyTorch trace.",
        ),
    ],
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Keep it with this run, or `latest`.")
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """Read a profile; with --run, keep it under the run's imports."""
    from profiles.errors import UnreadableProfile
    from tuner.errors import BadInput

    try:
        summary, folder = _read(file, run)
    except UnreadableProfile as error:
        raise BadInput("FILE", str(file), f"{error.reason}. {error.remedy}") from error
    report = {"run": run, "folder": folder, **summary}
    print_json(report) if json_output else print_fields(_in_words(report))


def _read(file: Path, run_id: str | None) -> tuple[dict[str, Any], str | None]:
    from profiles.nsight import read_capture, write_import
    from tuner.runs import open_run

    run = None if run_id is None else open_run(run_id)
    with _progress() as show:
        if run is None:
            return read_capture(file, progress=show).summary.model_dump(mode="json"), None
        folder = write_import(run.path / "imports", file, progress=show)
    return json.loads((folder / "summary.json").read_text(encoding="utf-8")), str(folder)


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr that goes away at the end, on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)


def _in_words(report: dict[str, Any]) -> dict[str, Any]:
    """The report for people: what is missing with its reason, notes one by one."""
    words = {
        name: value
        for name, value in report.items()
        if name not in _HIDDEN and name not in report["missing"] and value is not None
    }
    for busy in report["gpu_busy"] or []:
        gpu = "GPU" if busy["gpu"] is None else f"GPU {busy['gpu']}"
        words[f"{gpu} busy"] = f"{busy['busy_ns']:,} ns of {busy['window_ns']:,} ns"
    for metric in report["gpu_metrics"]:
        if metric["metric"].endswith(("_pct", "_mhz")) and metric["max"]:
            values = f"mean {metric['mean']:.4g}, {metric['min']:.4g} to {metric['max']:.4g}"
            words[f"GPU {metric['gpu']} {metric['metric']}"] = values
    words["missing"] = report["missing"]
    words |= {
        f"{note['level']} {number}": note["text"] for number, note in enumerate(report["notes"], 1)
    }
    return words
