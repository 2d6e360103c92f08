"""`tuner run`: measure one config on one workload against its own baseline."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from pydantic import ValidationError

from profiles.errors import ProfilesError
from profiles.records import Precision, TrialConfig, TrialResult, TrialState, WorkloadSpec
from profiles.store import RunFolder
from tuner.commands.auto_draft_len import settle_draft_len
from tuner.commands.output import JsonFlag, print_fields, print_json, reports_errors

if TYPE_CHECKING:
    from tuner.capture.choose import Asked

_CONFIG = typer.Argument(metavar="[CONFIG.yaml]", help="An exported config, or one of your own.")


@reports_errors
def run(
    config: Annotated[Path | None, _CONFIG] = None,
    engine: Annotated[str | None, typer.Option(help="redrafter or fake.")] = None,
    model: Annotated[
        str | None, typer.Option(help="smollm2-135m, a directory or a hub id.")
    ] = None,
    drafter: Annotated[
        str | None, typer.Option(help="A drafter directory, retrieval or retrieval:PATH.")
    ] = None,
    draft_vocab_size: Annotated[
        int | None, typer.Option(help="Draft the so many most frequent tokens only.")
    ] = None,
    drafter_quantization: Annotated[
        str | None, typer.Option(help="fp8: round the drafter's weights; on NVIDIA GPUs.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    beam_width: Annotated[int | None, typer.Option(help="Beams the drafter keeps.")] = None,
    draft_len: Annotated[
        str | None,
        typer.Option(help="Tokens drafted per beam; 0: no speculation; auto: as many as pay."),
    ] = None,
    draft_len_min: Annotated[
        int | None, typer.Option(help="Let every step draft from so many tokens to draft-len.")
    ] = None,
    speculate_up_to: Annotated[
        int | None, typer.Option(help="Draft only while at most so many requests run.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Requests served at once.")] = None,
    quantization: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(get_args(Precision))}; the last three on NVIDIA GPUs."),
    ] = None,
    kv_cache_dtype: Annotated[
        str | None, typer.Option(help="auto: as activations are; fp8: half the bytes of bf16.")
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="builtin, builtin:CATEGORY or a prompt file.")
    ] = None,
    requests: Annotated[int | None, typer.Option(help="Requests to serve.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Output limit of a request.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling.")] = None,
    profile: Annotated[
        str | None,
        typer.Option(help="Watch it with nsys, ncu or torch; its times are then no measurement."),
    ] = None,
    profile_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps to record; few, for captures grow fast.")
    ] = None,
    graph_trace: Annotated[
        str | None, typer.Option(help="CUDA graphs under nsys: by node, or graph as a whole.")
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """Measure one config: warm-up, paired rounds against no speculation, full records.

    With --profile, serve it once while a profiler records some steps, and show its phases.
    """
    knobs = {
        "engine": engine,
        "model": model,
        "drafter": drafter,
        "draft_vocab_size": draft_vocab_size,
        "drafter_quantization": drafter_quantization,
        "device": device,
        "beam_width": beam_width,
        "draft_len": _number(draft_len),
        "draft_len_min": draft_len_min,
        "speculate_up_to": speculate_up_to,
        "batch_size": batch_size,
        "quantization": quantization,
        "kv_cache_dtype": kv_cache_dtype,
    }
    load = {
        "workload": workload,
        "requests": requests,
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "seed": seed,
    }
    from tuner.capture.choose import choose_profiler

    trial, spec = read_run_config(config, knobs, load)
    asked = choose_profiler(trial, profile, graph_trace, profile_steps)
    report = _measure(trial, spec, asked, quiet=json_output)
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
        trial = TrialConfig.model_validate(settle_draft_len(config))
        return trial, WorkloadSpec.model_validate(spec)
    except ValidationError as error:
        raise bad_field(error, source) from error


def _number(text: str | None) -> int | str | None:
    """Return a number as one; what else there is, is judged with the config."""
    return int(text) if text and text.lstrip("-").isdecimal() else text


def _measure(
    trial: TrialConfig, spec: WorkloadSpec, asked: Asked | None, quiet: bool
) -> dict[str, Any]:
    from profiles.status import RunStatus
    from tuner.errors import BadInput, TunerError
    from tuner.runs import create_run
    from tuner.trial import headline, load_requests

    loaded = load_requests(trial, spec)
    if not quiet:
        _introduce(loaded.batch.rendered_first, loaded.batch.dropped, loaded.reason)
    stored = {"config": trial.model_dump(mode="json"), "workload": spec.model_dump(mode="json")}
    folder = create_run("run", stored, spec.seed, loaded.content_hash)
    folder.write_status(RunStatus.of_this_process("running", trial.describe(), 0, 1))
    try:
        result, captured = _run_trial(folder, trial, spec, asked)
    except (TunerError, ProfilesError) as error:
        folder.write_status(RunStatus.of_this_process("failed", str(error), 0, 1))
        if isinstance(error, TunerError) and error.exit_code == BadInput.exit_code:
            shutil.rmtree(folder.path)  # nothing was measured: nothing is left
        raise
    failed = result.error is not None
    folder.write_status(
        RunStatus.of_this_process("failed" if failed else "done", result.error or "", 1, 1)
    )
    return {"run": folder.run_id, **headline(result), **captured}


def _run_trial(
    folder: RunFolder, trial: TrialConfig, spec: WorkloadSpec, asked: Asked | None
) -> tuple[TrialResult, dict[str, Any]]:
    """The result, and what a profiler saw where one was asked for."""
    from tuner.trial import run_trial

    if asked is None:
        return run_trial(folder.trial(0), trial, spec, on_progress=_progress), {}
    from tuner.capture.capture import capture_trial
    from tuner.commands.captured import captured_fields

    _progress(0.0, f"serving under {asked.profiler.name}")
    result, capture = capture_trial(folder, 0, trial, asked.profiler, asked.steps, _importing)
    return result, {} if capture is None else {"capture": captured_fields(capture)}


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


def _importing(what: str, share: float) -> None:
    _progress(share, f"importing: {what}")
