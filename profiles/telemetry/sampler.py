"""Start and stop the sampler process around a piece of work.

`t_s` in its rows is CLOCK_MONOTONIC, which Linux shares between processes and which both
`time.monotonic()` and `time.perf_counter()` read, so an engine's step times and the samples lie
on one axis.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import profiles
from profiles.files import make_folder
from profiles.telemetry.rate import DEFAULT_HZ, check_hz

_STOP_WITHIN_S = 5.0


class Sampler:
    """Samples in a process of its own while the `with` block runs.

    The work never fails for want of telemetry: when the sampler dies, `failure` says why once the
    block is left, and the rows end early.
    """

    def __init__(
        self, out: Path, pid: int | None = None, gpus: Sequence[str] = (), hz: float = DEFAULT_HZ
    ) -> None:
        """Watch process `pid` (default: this one) and the GPUs with these UUIDs.

        Raises ValueError for a rate that the sampler does not keep up with.
        """
        self.out = out
        self.failure: str | None = None
        self._arguments = ["--out", str(out), "--pid", str(pid if pid is not None else os.getpid())]
        self._arguments += ["--gpus", ",".join(gpus), "--hz", str(check_hz(hz))]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The sampler's process id while it is started."""
        return self._process.pid if self._process is not None else None

    @property
    def log_path(self) -> Path:
        """What the sampler complained of; normally empty."""
        return self.out / "sampler.log"

    def start(self) -> None:
        """Start sampling; it takes some 0.3 s until the first row. Raises StorageError."""
        make_folder(self.out)
        root = str(Path(profiles.__file__).parents[1])
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "profiles.telemetry", *self._arguments],
                stdin=subprocess.PIPE,  # NOTE its closing, also by our death, ends the sampler
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([root, *_python_path()])},
            )

    def wait_until_ready(self, timeout_s: float = 10.0) -> bool:
        """Wait for the first rows to be on disk; False when they did not come in time."""
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        return bool(ready) and self._process.stdout.readline() == b"ready\n"

    def stop(self) -> None:
        """Stop sampling and wait for the last part. Safe to call twice."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            code = process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        process.stdout.close()
        if code != 0:
            self.failure = f"the sampler ended with status {code}: {self._last_complaint()}"

    def _last_complaint(self) -> str:
        lines = self.log_path.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it left no message"


def _python_path() -> list[str]:
    return [path for path in [os.environ.get("PYTHONPATH")] if path]
