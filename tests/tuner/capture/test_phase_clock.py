"""The clock of a step: which phase took how long, and which ranges a profiler sees."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from tuner.engines.redrafter.clock import PhaseClock, annotated_phases

CPU = torch.device("cpu")


def a_step() -> PhaseClock:
    clock = PhaseClock(CPU)
    for phase in ("draft", "verify", "accept", "host"):
        clock.begin(phase)
    clock.end()
    return clock


def test_phases_lie_end_to_end_within_the_step():
    clock = a_step()
    durations = clock.durations_ms()
    assert list(durations) == ["draft", "verify", "accept"]  # nothing followed host
    assert all(duration >= 0 for duration in durations.values())


def test_a_phase_that_comes_twice_adds_up():
    clock = PhaseClock(CPU)
    for phase in ("draft", "verify", "draft", "host"):
        clock.begin(phase)
    (_, first), (_, second), (_, third), (_, last) = clock._begins
    durations = clock.durations_ms()
    assert durations["draft"] == pytest.approx(((second - first) + (last - third)) * 1e3)
    assert durations["verify"] == pytest.approx((third - second) * 1e3)


def test_a_profiler_sees_every_phase_inside_its_step():
    events: list[str] = []

    @contextmanager
    def open_range(name):
        events.append(f"{name} begins")
        yield
        events.append(f"{name} ends")

    with annotated_phases(open_range):
        a_step()
    phases = [
        f"{phase} {what}"
        for phase in ("draft", "verify", "accept", "host")
        for what in ("begins", "ends")
    ]
    assert events == ["step begins", *phases, "step ends"]
    a_step()
    assert len(events) == 10  # nobody listens any more


def test_without_a_profiler_no_range_is_made():
    assert a_step()._ranges == []


@pytest.mark.gpu
def test_on_a_gpu_the_device_is_timed_not_the_launch():
    clock = PhaseClock(torch.device("cuda"))
    clock.begin("draft")
    torch.cuda._sleep(10_000_000)
    clock.begin("host")
    torch.cuda.synchronize()
    assert clock.durations_ms()["draft"] > 1.0
