"""`tuner eval-drafter`: exact acceptance of a drafter for a grid of beam widths and lengths."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.commands.output import JsonFlag, print_fields, print_json, reports_errors
from tuner.commands.prompts import read_prompts

if TYPE_CHECKING:
    from tuner.engines.redrafter.training.evaluate import AcceptanceCell, EvalReport

Table = dict[str, dict[str, float | None]]


@reports_errors
def eval_drafter(
    drafter: Annotated[
        str | None,
        typer.Option(
            help="A drafter directory, retrieval or retrieval:PATH; else the shipped one."
        ),
    ] = None,
    draft_vocab_size: Annotated[
        int | None, typer.Option(min=1, help="Draft the so many most frequent tokens only.")
    ] = None,
    drafter_quantization: Annotated[
        str | None, typer.Option(help="fp8: round the drafter's weights; on NVIDIA GPUs.")
    ] = None,
    model: Annotated[str, typer.Option(help="smollm2-135m, a directory or a hub id.")] = (
        "smollm2-135m"
    ),
    workload: Annotated[
        list[str] | None, typer.Option(help="builtin or a prompt file; may be given repeatedly.")
    ] = None,
    requests: Annotated[int, typer.Option(help="Prompts taken of each workload.")] = 24,
    max_new_tokens: Annotated[int, typer.Option(help="Output limit of an answer.")] = 128,
    grid: Annotated[
        str | None,
        typer.Option(
            help="Pairs beam_width x draft_len such as 4x4,8x5; else 1, 2, 4, 8, 16, 32 by 1 to 6."
        ),
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="Sample the answers; 0: the likeliest token always.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of what is sampled.")] = 0,
    precision: Annotated[
        str | None, typer.Option(help="fp32, fp16 or bf16; else bf16 on a GPU, fp32 on a CPU.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    json_output: JsonFlag = False,
) -> None:
    """Measure exact acceptance by beam width, draft length, category and position in the output.

    Every kind of drafter is led through the same answers of the base model, as in serving.

    --json prints: `prompts`; `repeating` and `short`, how many answers repeat themselves or are
    very short; `positions`, how many tokens there were to draft; `temperature`, `device`,
    `seconds`. Tables of numbers by `WxD`: `acceptance_length` and `steps` by category ("all" is
    every prompt) without repeating and short answers, `acceptance_length_with_repeating` by
    category, `acceptance_length_by_position` by the output tokens in which a step began. At a
    temperature over 0 also `expected_acceptance_length` and
    `expected_acceptance_length_with_repeating` by category: what the same steps commit on average
    over all tokens that the model may draw.
    """
    from tuner.engines.redrafter.engine import pick_device
    from tuner.engines.redrafter.training.evaluate import Sampling, evaluate_drafter
    from tuner.models import resolve_model

    began, where = time.monotonic(), str(pick_device(device))
    report = evaluate_drafter(
        resolve_model(model),
        _name(drafter, model),
        read_prompts(model, workload or ["builtin"], requests, max_new_tokens),
        _parse_grid(grid) if grid else None,
        max_new_tokens,
        where,
        precision,
        Sampling(temperature, seed),
        draft_vocab_size,
        drafter_quantization,
        _say,
    )
    result = {
        "prompts": report.prompts,
        "repeating": report.repeating,
        "short": report.short,
        "positions": report.positions,
        "temperature": temperature,
        "device": where,
        "seconds": round(time.monotonic() - began, 1),
    }
    if json_output:
        print_json(result | _tables(report, temperature > 0))
    else:
        print_fields(result)
        _print_grid("acceptance length", report.kept, "acceptance_length")
        if temperature > 0:
            _print_grid("expected", report.kept, "expected_acceptance_length")


def _name(drafter: str | None, model: str) -> str:
    """Return what drafts. Raises BadInput where nothing can."""
    from tuner.engines.redrafter.engine import SHIPPED_DRAFTER
    from tuner.models.drafters import check_drafter

    check_drafter(drafter, model)
    return drafter or str(SHIPPED_DRAFTER)


def _parse_grid(text: str) -> list[tuple[int, int]]:
    from tuner.errors import BadInput

    try:
        pairs = [tuple(map(int, cell.split("x"))) for cell in text.split(",")]
        return [(width, length) for width, length in pairs]
    except ValueError as error:
        raise BadInput("--grid", text, "write pairs such as 4x4,8x5") from error


def _tables(report: EvalReport, sampled: bool) -> dict[str, Table]:
    tables = {
        "acceptance_length": _table(report.kept, "acceptance_length"),
        "acceptance_length_with_repeating": _table(report.everything, "acceptance_length"),
        "acceptance_length_by_position": _table(report.by_position, "acceptance_length"),
        "steps": _table(report.kept, "steps"),
    }
    if sampled:
        wanted = "expected_acceptance_length"
        tables[wanted] = _table(report.kept, wanted)
        tables[f"{wanted}_with_repeating"] = _table(report.everything, wanted)
    return tables


def _table(cells: list[AcceptanceCell], what: str) -> Table:
    """One number of every cell by category, then by `WxD`."""
    table: Table = defaultdict(dict)
    for cell in cells:
        number: Any = getattr(cell, what)
        rounded = round(number, 4) if isinstance(number, float) else number
        table[cell.category][f"{cell.beam_width}x{cell.draft_len}"] = rounded
    return table


def _print_grid(title: str, cells: list[AcceptanceCell], what: str) -> None:
    """Print a number of all prompts, beam widths down and draft lengths across."""
    numbers = {(c.beam_width, c.draft_len): getattr(c, what) for c in cells if c.category == "all"}
    lengths = sorted({length for _, length in numbers})
    print(f"\n{title + ', all':<22}" + "".join(f"  D={length:<4}" for length in lengths))
    for width in sorted({width for width, _ in numbers}):
        row = [numbers.get((width, length)) for length in lengths]
        shown = "".join(f"  {'n/a' if number is None else f'{number:.3f}':<6}" for number in row)
        print(f"{f'W={width}':>22}{shown}")


def _say(fraction: float, text: str) -> None:
    print(f"{fraction:4.0%} {text}", file=sys.stderr)
