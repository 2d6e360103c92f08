"""Run NVIDIA's own command-line tools on a report, where this host has them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from profiles.errors import UnreadableProfile

_TIMEOUT_S = 900
# Where NVIDIA's packages put the tools without adding them to PATH; the newest version wins.
_USUAL_PLACES = {
    "nsys": (
        "nvidia/nsight-systems*/*/bin/nsys",
        "nvidia/nsight-systems*/*/target-linux-*/nsys",
        "nvidia/nsight-compute/*/host/target-linux-*/nsys",
    ),
    "ncu": ("nvidia/nsight-compute/*/ncu",),
}


def find_tool(tool: str, opt: Path = Path("/opt")) -> str | None:
    """Path of `tool` on PATH, else in the places where NVIDIA's packages put it; None without."""
    if found := shutil.which(tool):
        return found
    for pattern in _USUAL_PLACES.get(tool, ()):
        if installed := [path for path in sorted(opt.glob(pattern)) if os.access(path, os.X_OK)]:
            return str(installed[-1])
    return None


def run_tool(tool: str, arguments: list[str], report: Path, without: str) -> bytes:
    """Run `tool` and return its standard output; `without` is the remedy where it is missing.

    Raises:
        UnreadableProfile: the tool is missing, fails, or takes more than 15 minutes.
    """
    found = find_tool(tool)
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
