"""`tuner run`: measure one config on one workload against its own baseline."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from profiles.records import TrialConfig, TrialState, WorkloadSpec
from tuner.commands.output import JsonFlag, print_fields, print_json, reports_errors

_CONFIG = typer.Argument(metavar="[CONFIG.yaml]", help="An exported config, or one of your own.")


@reports_errors
def run(
    config: Annotated[Path | None, _CONFIG] = None,
    engine: Annotated[str | None, typer.Option(help="redrafter or fake.")] = None,
    model: Annotated[
        str | None, typer.Option(help="smollm2-135m, a directory or a hub id.")
    ] = None,
    drafter: Annotated[str | None, typer.Option(help="A drafter directory.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    beam_width: Annotated[int | None, typer.Option(help="Beams the drafter keeps.")] = None,
    draft_len: Annotated[
        int | None, typer.Option(help="Tokens drafted per beam; 0 is no speculation.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Requests served at once.")] = None,
    quantization: Annotated[str | None, typer.Option(help="fp32, bf16, fp16.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="builtin, builtin:CATEGORY or a prompt file.")
    ] = None,
    requests: Annotated[int | None, typer.Option(help="Requests to serve.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Output limit of a request.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Measure one config: warm-up, paired rounds against no speculation, full records."""
    knobs = {
        "engine": engine,
        "model": model,
        "drafter": drafter,
        "device": device,
        "beam_width": beam_width,
        "draft_len": draft_len,
        "batch_size": batch_size,
        "quantization": quantization,
    }
    load = {
        "workload": workload,
        "requests": requests,
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "seed": seed,
    }
    trial, spec = read_run_config(config, knobs, load)
    report = _measure(trial, spec, quiet=json_output)
    print_json(report) if json_output else print_fields(report)
    if report["state"] != TrialState.COMPLETE:
        raise typer.Exit(1)


def read_run_config(
    path: Path | None, knobs: dict[str, Any], load: dict[str, Any]
) -> tuple[TrialConfig, WorkloadSpec]:
    """Join a config file with flags, which win. Raises BadInput naming the field."""
    from tuner.errors import BadInput
    from tuner.sweep.spec import bad_field, read_yaml

    document = read_yaml(path, "CONFIG") if path else {}
    known = {"format", "config", "workload", "evidence"}
    unknown = sorted(document.keys() - known)
    if unknown:
        raise BadInput(unknown[0], document[unknown[0]], f"unknown field; use {sorted(known)}")
    config = {**document.get("config", {}), **{k: v for k, v in knobs.items() if v is not None}}
    spec = {**document.get("workload", {}), **{k: v for k, v in load.items() if v is not None}}
    source = str(path) if path else "the command line"
    try:
        return TrialConfig.model_validate(config), WorkloadSpec.model_validate(spec)
    except ValidationError as error:
        raise bad_field(error, source) from error


def _measure(trial: TrialConfig, spec: WorkloadSpec, quiet: bool) -> dict[str, Any]:
    from profiles.status import RunStatus
    from tuner.errors import BadInput
    from tuner.runs import create_run
    from tuner.trial import headline, load_requests, run_trial

    loaded = load_requests(trial, spec)
    if not quiet:
        _introduce(loaded.batch.rendered_first, loaded.batch.dropped, loaded.reason)
    asked = {"config": trial.model_dump(mode="json"), "workload": spec.model_dump(mode="json")}
    folder = create_run("run", asked, spec.seed, loaded.content_hash)
    folder.write_status(RunStatus.of_this_process("running", trial.describe(), 0, 1))
    try:
        result = run_trial(folder.trial(0), trial, spec, on_progress=_progress)
    except BadInput:
        shutil.rmtree(folder.path)  # nothing was measured: nothing is left
        raise
    failed = result.error is not None
    folder.write_status(
        RunStatus.of_this_process("failed" if failed else "done", result.error or "", 1, 1)
    )
    return {"run": folder.run_id, **headline(result)}


def _introduce(first: str, dropped: tuple[str, ...], reason: str | None) -> None:
    print("first prompt:", file=sys.stderr)
    print("\n".join(f"  | {line}" for line in first.splitlines()), file=sys.stderr)
    for line in dropped:
        print(f"dropped: {line}", file=sys.stderr)
    if reason:
        print(f"note: {reason}", file=sys.stderr)


def _progress(fraction: float, text: str) -> None:
    if sys.stderr.isatty():
        end = "\n" if fraction == 1.0 else ""
        print(f"\r{fraction:4.0%} {text:<60}", end=end, file=sys.stderr, flush=True)
