"""The sampler process: `python -m profiles.telemetry --out DIR --pid PID [--gpus UUID,...]`.

It stops on SIGTERM, when its standard input closes and when its parent dies, so it cannot be left
behind. Ctrl-C is the parent's to handle. It prints `ready` once its first rows are on disk.

`python -m profiles.telemetry --once` samples nothing for later: it prints every counter of the host
and of all GPUs with its value or the reason why there is none.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

from profiles.files import make_folder
from profiles.telemetry import once
from profiles.telemetry.counters import Source, Unavailable
from profiles.telemetry.gpu import Gpu
from profiles.telemetry.gpu_processes import GpuProcesses, sees_host_pids
from profiles.telemetry.host import Host
from profiles.telemetry.loop import Recorder, run_loop
from profiles.telemetry.nvml import start_nvml
from profiles.telemetry.process_tree import process_tree
from profiles.telemetry.rate import DEFAULT_HZ, check_hz

_NICE = 5  # what is measured goes first; at 19 a host without an idle core starves the sampler


def main() -> None:
    """Sample until told to stop, or print every counter once."""
    arguments = _parse_arguments()
    if arguments.once:
        sources, notices = _open_sources(arguments.pid, arguments.gpus)
        print("\n".join([*notices, *once.lines(sources, time.monotonic, time.sleep)]))
        return
    stop = _Stop()
    make_folder(arguments.out)
    sources, notices = _open_sources(arguments.pid, arguments.gpus or [])
    recorder = Recorder(arguments.out, sources, notices)
    recorder.tick()
    recorder.flush()
    os.nice(_NICE)
    print("ready", flush=True)
    run_loop(recorder, arguments.hz, stop.wait)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m profiles.telemetry", description=__doc__)
    parser.add_argument("--once", action="store_true", help="print every counter and end")
    parser.add_argument("--out", type=Path, help="folder for the samples")
    parser.add_argument("--pid", type=int, default=os.getpid(), help="process to watch")
    parser.add_argument("--gpus", type=_split, help="UUIDs of GPUs, by commas")
    parser.add_argument("--hz", type=_hz, default=DEFAULT_HZ, help="samples per second")
    arguments = parser.parse_args()
    if not arguments.once and arguments.out is None:
        parser.error("--out: name a folder for the samples, or ask for --once")
    return arguments


def _split(text: str) -> list[str]:
    return [uuid for uuid in text.split(",") if uuid]


def _hz(text: str) -> float:
    try:
        return check_hz(float(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _open_sources(pid: int, gpus: list[str] | None) -> tuple[list[Source], list[str]]:
    """The host and the GPUs, all of them for None; where NVML does not start, one notice."""
    sources: list[Source] = [Host(pid)]
    try:
        nvml = start_nvml()
        uuids = once.all_uuids(nvml) if gpus is None else gpus
    except Unavailable as error:
        return sources, [f"No GPU counters: {error.reason}"]
    if not uuids:
        return sources, ["No GPU counters: no GPU was named to the sampler"]
    processes = GpuProcesses(nvml, lambda: process_tree(pid), sees_host_pids())
    return [*sources, *(Gpu(nvml, uuid, processes) for uuid in uuids)], []


class _Stop:
    """Waiting that ends early, and with True, when it is time to stop."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        woken, self._waker = socket.socketpair()
        self._woken, self._stdin = woken.detach(), sys.stdin.fileno()
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno())
        signal.signal(signal.SIGTERM, lambda *_: None)  # the wake-up socket carries the message
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._poll = select.poll()  # which costs less at every tick than select
        self._poll.register(self._woken, select.POLLIN)
        self._poll.register(self._stdin, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        ready = {descriptor for descriptor, _ in self._poll.poll(1000 * seconds)}
        stdin_closed = self._stdin in ready and not os.read(self._stdin, 4096)
        return stdin_closed or self._woken in ready or os.getppid() != self._parent


if __name__ == "__main__":
    main()
