"""`tuner sweep`, `status`, `stop`, `resume`, `best`, `export`: the life of a search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from profiles.store import RunFolder
from tuner.commands.output import JsonFlag, RunArgument, print_fields, print_json, reports_errors


@reports_errors
def sweep(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="[SPEC.yaml]", help="What to search; the suggested sweep without."),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Configs beside the baselines.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Search beam width, draft length, batch size, quantization and drafter."""
    from tuner.launch import create_sweep
    from tuner.sweep.spec import parse_spec, read_yaml

    data = read_yaml(spec, "SPEC") if spec else {}
    if trials is not None:
        data["trials"] = trials
    run = create_sweep(parse_spec(data, str(spec or "the command line")))
    _run_sweep(run, json_output)


@reports_errors
def resume(run: RunArgument, json_output: JsonFlag = False) -> None:
    """Go on with a stopped or killed sweep; finished trials are kept and not repeated."""
    from tuner.runs import open_run

    _run_sweep(open_run(run, "sweep"), json_output)


def _run_sweep(run: RunFolder, json_output: bool) -> None:
    from tuner.errors import NoFeasibleConfig
    from tuner.launch import host_lock
    from tuner.sweep.coordinator import Coordinator
    from tuner.sweep.spec import parse_spec
    from tuner.verdict import judge

    spec = parse_spec(dict(run.record().spec), run.run_id)
    with host_lock(run):
        Coordinator(run, spec).run_to_the_end()
    verdict = judge(run)
    report = {"run": run.run_id, **verdict.model_dump(mode="json")}
    print_json(report) if json_output else print_fields(report)
    if verdict.best is None:
        raise NoFeasibleConfig(verdict.verdict)


@reports_errors
def status(run: RunArgument = "latest", json_output: JsonFlag = False) -> None:
    """Say where a run stands."""
    from tuner.runs import open_run

    folder = open_run(run)
    now = folder.status()
    report: dict[str, Any] = {
        "run": folder.run_id,
        "state": folder.observed_state(),
        "message": now.message if now else "",
        "trials_done": now.trials_done if now else 0,
        "trials_planned": now.trials_planned if now else None,
        "trials": [_row(result) for result in folder.trials()],
    }
    print_json(report) if json_output else print_fields(report)


def _row(result: Any) -> Any:
    speed = f"{result.metrics.output_tokens_per_s:.1f} tok/s" if result.metrics else result.error
    ratio = f", {result.speedup.speedup:.2f}x" if result.speedup else ""
    return f"{result.number}: {result.config.describe()}: {result.state}, {speed}{ratio}"


@reports_errors
def stop(run: RunArgument = "latest", json_output: JsonFlag = False) -> None:
    """Ask a sweep to stop after the trial in progress."""
    from tuner.launch import stop_sweep
    from tuner.runs import open_run

    folder = open_run(run, "sweep")
    stop_sweep(folder.run_id)
    report = {"run": folder.run_id, "stop_requested": True}
    print_json(report) if json_output else print_fields(report)


@reports_errors
def best(run: RunArgument = "latest", json_output: JsonFlag = False) -> None:
    """Name the best config, by how much, and how surely."""
    from tuner.errors import NoFeasibleConfig

    folder, verdict = _judged(run)
    report = {"run": folder.run_id, **verdict.model_dump(mode="json"), "config": None}
    if verdict.best is not None:
        report["config"] = folder.trial(verdict.best).config().model_dump(mode="json")  # type: ignore[union-attr]
    print_json(report) if json_output else print_fields(report)
    if verdict.best is None:
        raise NoFeasibleConfig(verdict.verdict)


@reports_errors
def export(
    run: RunArgument = "latest",
    to: Annotated[str, typer.Option(help="yaml or json.")] = "yaml",
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path(),
    trial: Annotated[int | None, typer.Option(help="A trial other than the best.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Write the best config out with its evidence; `tuner run FILE` takes it back."""
    from tuner.errors import NoFeasibleConfig
    from tuner.export import export as write

    folder, verdict = _judged(run)
    number = trial if trial is not None else verdict.best
    if number is None:
        raise NoFeasibleConfig(verdict.verdict)
    path = write(folder, number, to, out)
    report = {"run": folder.run_id, "trial": number, "file": str(path)}
    print_json(report) if json_output else print_fields(report)


def _judged(run_id: str) -> tuple[RunFolder, Any]:
    from tuner.runs import open_run
    from tuner.verdict import judge

    run = open_run(run_id, "sweep")
    return run, judge(run)
