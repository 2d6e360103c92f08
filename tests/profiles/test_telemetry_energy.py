import pandas as pd
import pytest

from profiles.telemetry.columns import HOST
from profiles.telemetry.counters import Missing
from profiles.telemetry.energy import energy_between
from profiles.telemetry.parts import Reasons


def samples(energy, source="GPU-a", column="energy_mj", t0=0.0):
    frame = pd.DataFrame({"t_s": [t0 + float(i) for i in range(len(energy))], column: energy})
    for name in ("energy_mj", "cpu_energy_mj"):
        if name not in frame:
            frame[name] = float("nan")
    return frame.assign(source=source)


def test_difference_of_the_counter_over_the_window():
    use = energy_between(samples([1000, 1100, 1300, 1600]), 1.0, 3.0, tokens=50)
    assert use.energy_mj == pytest.approx(500)
    assert use.energy_mj_per_token == pytest.approx(10)
    assert use.reason is None


def test_ends_between_samples_are_interpolated():
    assert energy_between(samples([0, 100, 300]), 0.5, 1.5).energy_mj == pytest.approx(150)


def test_counter_that_restarts_counts_on_from_zero():
    # 100 before the restart, 40 and 50 after it
    assert energy_between(samples([900, 1000, 40, 90]), 0.0, 3.0).energy_mj == pytest.approx(190)


def test_gpus_are_summed_and_the_host_left_out():
    frame = pd.concat(
        [
            samples([0, 100, 200]),
            samples([5, 10, 15], source="GPU-b"),
            samples([0, 7, 14], source=HOST, column="cpu_energy_mj"),
        ]
    )
    assert energy_between(frame, 0.0, 2.0).energy_mj == pytest.approx(210)


def test_host_without_gpus_gives_cpu_energy():
    frame = samples([0, 7, 14], source=HOST, column="cpu_energy_mj")
    assert energy_between(frame, 0.0, 2.0).energy_mj == pytest.approx(14)


def test_gap_in_the_samples_does_not_lose_energy():
    frame = samples([0, float("nan"), float("nan"), 300])
    assert energy_between(frame, 0.0, 3.0).energy_mj == pytest.approx(300)


def test_one_gpu_without_energy_makes_the_sum_missing():
    frame = pd.concat([samples([0, 100]), samples([float("nan")] * 2, source="GPU-b")])
    reasons = Reasons(columns={"GPU-b": {"energy_mj": Missing("not supported", 0.0)}})
    use = energy_between(frame, 0.0, 1.0, reasons)
    assert use.energy_mj is None
    assert use.energy_mj_per_token is None
    assert use.reason == "GPU-b: not supported"


def test_window_outside_the_samples_is_missing():
    use = energy_between(samples([0, 100], t0=10.0), 0.0, 11.0)
    assert use.energy_mj is None
    assert "from 10.0 to 11.0 s" in use.reason
    assert energy_between(samples([0, 100]), 0.0, 5.0).energy_mj is None


def test_no_samples_at_all_are_missing():
    use = energy_between(samples([]), 0.0, 1.0)
    assert use.reason == "host: no energy counter was sampled"


@pytest.mark.parametrize(("t1_s", "tokens"), [(0.0, 1), (float("nan"), 1), (1.0, 0)])
def test_empty_window_and_no_tokens_are_refused(t1_s, tokens):
    with pytest.raises(ValueError):
        energy_between(samples([0, 1]), 0.0, t1_s, tokens=tokens)
