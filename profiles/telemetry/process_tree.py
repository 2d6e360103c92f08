"""A process and everything it started."""

from __future__ import annotations

from pathlib import Path

import psutil


def process_tree(pid: int) -> set[int]:
    """`pid` and everything below it.

    Linux lists the children of every thread, which costs a few reads; psutil would read the stat
    of every process of the host, thousands on a large one.
    """
    tasks = Path(f"/proc/{pid}/task")
    if not (tasks / str(pid) / "children").exists():
        return _by_psutil(pid)
    found, waiting = set(), [pid]
    while waiting:
        member = waiting.pop()
        found.add(member)
        try:
            for task in Path(f"/proc/{member}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # it ended while we looked
    return found


def _by_psutil(pid: int) -> set[int]:
    try:
        return {pid} | {child.pid for child in psutil.Process(pid).children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()
