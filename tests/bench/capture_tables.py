"""Captures as plain text, for `gpu_profile`."""

from __future__ import annotations

from collections.abc import Sequence

from profiles.activity_check import ActivityCheck
from profiles.nsight.phases import CapturedPhase, CapturedPhases
from profiles.trial_capture import TrialCapture

WITHIN_POINTS = 3.0
_TOP = 12
_HEADINGS = ("host ms", "GPU ms", "gap ms", "launches", "kernels", "graphs", "copies")


def text_of(name: str, capture: TrialCapture) -> str:
    """Everything that a reader wants to see of one capture."""
    seen, steps = capture.anatomy, capture.window.steps
    seconds = capture.window.end_s - capture.window.start_s
    lines = [f"## {name}: {steps} steps, {seconds:.2f} s", seen.graphs_note]
    lines += [_step(seen), _gaps(seen)]
    lines += phase_table(seen, steps) + kernel_table(seen)
    lines += [f"missing {field}: {reason}" for field, reason in seen.missing.items()]
    lines += [activity(check) for check in capture.activity]
    return "\n".join(line for line in lines if line) + "\n"


def activity(check: ActivityCheck) -> str:
    """One line of the two witnesses."""
    if check.difference_points is None:
        return f"{check.metric}: not compared, {check.reason}"
    verdict = "within" if abs(check.difference_points) <= WITHIN_POINTS else "NOT within"
    return (
        f"{check.metric}: Nsight {check.nsight_pct:.2f}, GPM {check.gpm_pct:.2f}, difference "
        f"{check.difference_points:+.2f} points over {check.windows} windows, {verdict} "
        f"{WITHIN_POINTS:g} points"
    )


def phase_table(seen: CapturedPhases, steps: int) -> list[str]:
    """One row a phase; times in ms and counts, each per captured step."""
    header = (
        f"{'phase':<9}{'host ms':>10}{'GPU ms':>10}{'gap ms':>10}{'launches':>10}{'kernels':>10}"
    )
    return [header + f"{'graphs':>8}{'copies':>8}", *(_phase(row, steps) for row in seen.phases)]


def kernel_table(seen: CapturedPhases) -> list[str]:
    """The kernels that took most time."""
    return [
        f"{(kernel.total_ns or 0) / 1e6:>10.3f} ms {kernel.count:>7} x {kernel.phase:<8} "
        f"{kernel.kernel[:90]}"
        for kernel in seen.kernels[:_TOP]
    ]


def _phase(row: CapturedPhase, steps: int) -> str:
    times = (row.host_ns, row.gpu_busy_ns, row.gap_before_ns)
    cells = ["n/a" if time is None else f"{time / steps / 1e6:.3f}" for time in times]
    counts = (row.launches, row.kernels, row.graphs, row.copies)
    cells += ["n/a" if count is None else f"{count / steps:.1f}" for count in counts]
    return f"{row.phase:<9}" + _cells(cells)


def _cells(cells: Sequence[str]) -> str:
    return "".join(f"{cell:>10}" for cell in cells)


def _step(seen: CapturedPhases) -> str:
    if seen.step is None:
        return ""
    parts = [f"median step: wall {seen.step.wall_ns / 1e6:.3f} ms"]
    if seen.step.gpu_busy_ns is not None:
        parts.append(f"GPU busy {seen.step.gpu_busy_ns / 1e6:.3f} ms")
    for name in ("launches", "kernels"):
        if (value := getattr(seen.step, name)) is not None:
            parts.append(f"{value:g} {name}")
    return ", ".join(parts)


def _gaps(seen: CapturedPhases) -> str:
    if seen.gaps is None:
        return ""
    share = seen.gaps.idle_ns / seen.gaps.window_ns
    return f"GPU idle {share:.1%} of the steps, longest gap {seen.gaps.longest_gap_ns / 1e6:.3f} ms"
