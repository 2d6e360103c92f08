"""`tuner export-drafter`: a drafter in another checkpoint layout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.commands.output import JsonFlag, print_fields, print_json, reports_errors

LAYOUTS = ("apple", "redrafter")


@reports_errors
def export_drafter(
    drafter: Annotated[Path, typer.Argument(help="A drafter directory in either layout.")],
    out: Annotated[Path, typer.Option(help="Folder to write, empty or new.")],
    to: Annotated[str, typer.Option(help="apple (TensorRT-LLM converts it) or redrafter.")],
    json_output: JsonFlag = False,
) -> None:
    """Write a drafter in Apple's checkpoint layout, or in ours, in its stored precision.

    Printed: `drafter`, `out`, `layout`, and `changes`, what the layout's readers do differently.
    """
    from tuner.engines.redrafter.checkpoint import export_for_apple, read_drafter, save_drafter
    from tuner.errors import BadInput

    if to not in LAYOUTS:
        raise BadInput("--to", to, f"use one of {', '.join(LAYOUTS)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput("--out", str(out), "is not an empty folder; name a new one")
    read = read_drafter(drafter)
    changes: list[str] = []
    if to == "apple":
        changes = export_for_apple(read, out)
    else:
        save_drafter(read, out, dtype=None)
    result = {"drafter": str(drafter), "out": str(out), "layout": to, "changes": changes}
    print_json(result) if json_output else print_fields(result)
