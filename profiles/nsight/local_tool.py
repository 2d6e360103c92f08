"""Run NVIDIA's own command-line tools on a report, where this host has them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from profiles.errors import UnreadableProfile

_TIMEOUT_S = 900


def run_tool(tool: str, arguments: list[str], report: Path, without: str) -> bytes:
    """Run `tool` and return its standard output; `without` is the remedy where it is missing.

    Raises:
        UnreadableProfile: the tool is missing, fails, or takes more than 15 minutes.
    """
    found = shutil.which(tool)
    if found is None:
        raise UnreadableProfile(report, f"reading it needs `{tool}`, which is not here", without)
    try:
        done = subprocess.run(
            [found, *arguments],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"LC_ALL": "C"},  # numbers with a decimal point
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreadableProfile(report, f"`{tool}` did not finish ({error})", without) from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        said = lines[-1][:300] if lines else f"exit code {done.returncode}"
        raise UnreadableProfile(report, f"`{tool}` could not read it: {said}", without)
    return done.stdout
