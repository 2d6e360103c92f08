"""The dashboard as a real Streamlit server on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import dashboard

ROOT = Path(dashboard.__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
CHROMIUM_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@contextmanager
def serving(runs: Path, server: Sequence[str] = ("dashboard",)) -> Iterator[str]:
    """The address of a dashboard over `runs`; its process is gone afterwards.

    `server` may name another module and its arguments to serve with.
    """
    port = str(_free_port())
    process = subprocess.Popen(
        [sys.executable, "-m", *server, "--server.port", port],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "TUNER_RUNS_DIR": str(runs)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            lines = list(_until_it_answers(process.stdout))
            assert process.poll() is None, "".join(lines)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(10)  # NOTE: with its pipe closed too early it never ends
            except subprocess.TimeoutExpired:
                process.kill()


def _until_it_answers(output: TextIO) -> Iterator[str]:
    """Yield what the server says until it names its address, or ends."""
    for line in output:
        yield line
        if "URL:" in line:
            return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
