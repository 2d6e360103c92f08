"""The sampler process: `python -m profiles.telemetry --out DIR --pid PID [--gpus UUID,...]`.

It stops on SIGTERM, when its standard input closes and when its parent dies, so it cannot be left
behind. Ctrl-C is the parent's to handle. It prints `ready` once its first rows are on disk.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import sys
from pathlib import Path

from profiles.files import make_folder
from profiles.telemetry.counters import Source, Unavailable
from profiles.telemetry.gpu import Gpu
from profiles.telemetry.host import Host
from profiles.telemetry.loop import Recorder, run_loop
from profiles.telemetry.nvml import start_nvml

DEFAULT_HZ = 10.0


def main() -> None:
    """Sample until told to stop."""
    stop = _Stop()
    arguments = _parse_arguments()
    make_folder(arguments.out)
    sources, notices = _open_sources(arguments.pid, arguments.gpus)
    recorder = Recorder(arguments.out, sources, notices)
    recorder.tick()
    recorder.flush()
    print("ready", flush=True)
    run_loop(recorder, arguments.hz, stop.wait)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m profiles.telemetry", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the samples")
    parser.add_argument("--pid", type=int, required=True, help="process to watch")
    parser.add_argument("--gpus", type=_split, default=[], help="UUIDs of GPUs, by commas")
    parser.add_argument("--hz", type=_positive, default=DEFAULT_HZ, help="samples per second")
    return parser.parse_args()


def _split(text: str) -> list[str]:
    return [uuid for uuid in text.split(",") if uuid]


def _positive(text: str) -> float:
    hz = float(text)
    if not 0 < hz <= 1000:
        raise argparse.ArgumentTypeError(f"{hz} is not in 0 .. 1000 Hz")
    return hz


def _open_sources(pid: int, gpus: list[str]) -> tuple[list[Source], list[str]]:
    """The host and every GPU; where NVML does not start, one notice instead of the GPUs."""
    sources: list[Source] = [Host(pid)]
    try:
        nvml = start_nvml()
    except Unavailable as error:
        return sources, [f"No GPU counters: {error.reason}"]
    if not gpus:
        return sources, ["No GPU counters: no GPU was named to the sampler"]
    return [*sources, *(Gpu(nvml, uuid) for uuid in gpus)], []


class _Stop:
    """Waiting that ends early, and with True, when it is time to stop."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno())
        signal.signal(signal.SIGTERM, lambda *_: None)  # the wake-up socket carries the message
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait(self, seconds: float) -> bool:
        ready, _, _ = select.select([sys.stdin, self._woken], [], [], seconds)
        stdin_closed = sys.stdin in ready and not os.read(sys.stdin.fileno(), 4096)
        return stdin_closed or self._woken in ready or os.getppid() != self._parent


if __name__ == "__main__":
    main()
