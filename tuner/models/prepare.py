"""Prepare the built-in model with a progress bar: `python -m tuner.models.prepare`."""

from __future__ import annotations

import sys

from tuner.errors import TunerError
from tuner.models.builtin import prepare_builtin
from tuner.models.resolve import BUILTIN_MODEL, cache_dir


def main() -> int:
    """Prepare the model unless it is there; return the exit code."""
    target = cache_dir() / BUILTIN_MODEL
    if (target / "config.json").is_file():
        return 0
    from rich.console import Console
    from rich.progress import Progress

    try:
        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task(f"preparing {BUILTIN_MODEL}", total=1.0)
            prepare_builtin(target, lambda fraction, text: bar.update(task, completed=fraction))
    except TunerError as error:
        print(f"run.sh: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
