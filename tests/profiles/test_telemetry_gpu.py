import math

import pytest
from fake_nvml import FakeNvml

from profiles.telemetry.columns import COLUMNS, GPU_NAMES
from profiles.telemetry.counters import Unavailable
from profiles.telemetry.gpm import GPM_METRICS
from profiles.telemetry.gpu import Gpu
from profiles.telemetry.nvml import start_nvml

CALL_OF = {
    "gpu_busy_pct": "nvmlDeviceGetUtilizationRates",
    "memory_used_bytes": "nvmlDeviceGetMemoryInfo",
    "power_mw": "nvmlDeviceGetPowerUsage",
    "energy_mj": "nvmlDeviceGetTotalEnergyConsumption",
    "sm_clock_mhz": "nvmlDeviceGetClockInfo",
}


def sample_at(gpu, *times):
    """The last of several full samples."""
    for t_s in times:
        values = gpu.sample(t_s, full=True)
    return values


def test_every_counter_of_a_hopper_gpu():
    gpu = Gpu(FakeNvml(), "GPU-a")
    assert sample_at(gpu, 0.0, 0.1, 0.2) == {
        "gpu_busy_pct": 40.0,
        "sm_active_pct": 50.0,
        "sm_occupancy_pct": 25.0,
        "tensor_active_pct": 12.5,
        "dram_active_pct": 75.0,
        "memory_used_bytes": 1 << 30,
        "power_mw": 300_000,
        "energy_mj": 1000,
        "sm_clock_mhz": 1980,
        "temperature_c": 61,
        "throttle_reasons": 4,
    }
    assert gpu.missing() == {}


@pytest.mark.parametrize("column", CALL_OF)
@pytest.mark.parametrize("code", [3, 4, 13, 15, 999])
def test_each_counter_is_missing_alone_with_its_reason(column, code):
    gpu = Gpu(FakeNvml(refuse={CALL_OF[column]: code}), "GPU-a")
    values = sample_at(gpu, 0.0, 0.1, 0.2)
    assert [name for name in GPU_NAMES if values[name] is None] == [column]
    missing = gpu.missing()
    assert list(missing) == [column]
    assert f"(NVML error {code})" in missing[column].reason
    assert missing[column].since_t_s == 0.0


def test_what_will_never_work_is_asked_once_and_what_may_is_asked_again():
    nvml = FakeNvml(refuse={"nvmlDeviceGetPowerUsage": 3, "nvmlDeviceGetClockInfo": 15})
    sample_at(Gpu(nvml, "GPU-a"), 0.0, 0.1, 0.2)
    assert nvml.calls["nvmlDeviceGetPowerUsage"] == 1
    assert nvml.calls["nvmlDeviceGetClockInfo"] == 3


def test_costly_energy_is_read_once_a_second_and_when_all_is_asked_for():
    nvml = FakeNvml()
    gpu = Gpu(nvml, "GPU-a")
    ticks = [gpu.sample(k / 10) for k in range(21)]
    assert [k for k, row in enumerate(ticks) if row["energy_mj"] is not None] == [0, 10, 20]
    assert gpu.missing() == {}
    assert gpu.sample(2.1, full=True)["energy_mj"] == 1000
    assert nvml.calls["nvmlDeviceGetTotalEnergyConsumption"] == 4


def test_old_drivers_get_the_old_calls():
    nvml = FakeNvml(
        refuse={
            "memory v2": 13,
            "nvmlDeviceGetTemperatureV": 13,
            "nvmlDeviceGetCurrentClocksEventReasons": 13,
        }
    )
    gpu = Gpu(nvml, "GPU-a")
    values = gpu.sample(0.0)
    assert values["memory_used_bytes"] == 2 << 30
    assert values["temperature_c"] == 60
    assert values["throttle_reasons"] == 8
    assert gpu.missing() == {}


def test_lost_gpu_is_a_gap_with_a_reason_and_may_come_back():
    nvml = FakeNvml()
    gpu = Gpu(nvml, "GPU-a")
    sample_at(gpu, 0.0, 0.1, 0.2)
    lost = [*CALL_OF.values(), "nvmlDeviceGetTemperatureV", "nvmlGpmSampleGet"]
    lost += ["nvmlDeviceGetCurrentClocksEventReasons"]
    nvml.refuse = dict.fromkeys(lost, 15)
    assert set(sample_at(gpu, 0.3, 0.4).values()) == {None}
    assert {missing.since_t_s for missing in gpu.missing().values()} == {0.3}
    assert "the GPU is lost" in gpu.missing()["sm_active_pct"].reason
    nvml.refuse = {}
    back = gpu.sample(0.5)
    assert back["power_mw"] == 300_000
    assert back["sm_active_pct"] is None  # its window would span the gap
    assert sample_at(gpu, 0.6, 0.7)["sm_active_pct"] == 50.0


def test_unknown_uuid_leaves_every_column_missing():
    gpu = Gpu(FakeNvml(), "GPU-z")
    assert set(gpu.sample(1.0).values()) == {None}
    assert set(gpu.missing()) == set(GPU_NAMES)


def test_impossible_busy_is_refused_not_clipped():
    nvml = FakeNvml()
    nvml.busy = 250
    gpu = Gpu(nvml, "GPU-a")
    assert gpu.sample(0.0)["gpu_busy_pct"] is None
    assert "250 %" in gpu.missing()["gpu_busy_pct"].reason


def test_gpm_windows_are_longer_than_the_drivers_refresh():
    nvml = FakeNvml()
    gpu = Gpu(nvml, "GPU-a")
    first = gpu.sample(0.0)
    second = gpu.sample(0.1)
    assert first["sm_active_pct"] is second["sm_active_pct"] is None
    assert gpu.missing() == {}  # a window that fills is no fault
    sample_at(gpu, 0.2, 0.3, 0.4)
    assert nvml.gpm_pairs == [(1, 3), (2, 4), (3, 5)]
    assert len(nvml.buffers) == 3
    gpu.close()
    assert nvml.buffers == set()


def test_older_gpus_have_no_gpm():
    nvml = FakeNvml(gpm=False)
    gpu = Gpu(nvml, "GPU-a")
    values = sample_at(gpu, 0.0, 0.1, 0.2)
    assert all(values[column] is None for column in GPM_METRICS)
    assert "Hopper" in gpu.missing()["tensor_active_pct"].reason
    assert nvml.calls["nvmlGpmSampleAlloc"] == 0


@pytest.mark.parametrize("call", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc",
                                  "nvmlGpmSampleGet", "nvmlGpmMetricsGet"])  # fmt: skip
def test_gpm_can_be_forbidden(call):
    nvml = FakeNvml(refuse={call: 4})
    gpu = Gpu(nvml, "GPU-a")
    values = sample_at(gpu, 0.0, 0.1, 0.2, 0.3)
    assert values["sm_active_pct"] is None
    assert values["gpu_busy_pct"] == 40.0
    assert "NVreg_RestrictProfilingToAdminUsers" in gpu.missing()["sm_active_pct"].reason
    assert nvml.calls[call] == 1
    gpu.close()
    assert nvml.buffers == set()


def test_one_gpm_metric_can_be_missing_alone():
    nvml = FakeNvml()
    nvml.gpm_returns = {5: 3}
    nvml.gpm_values |= {10: math.nan}
    gpu = Gpu(nvml, "GPU-a")
    values = sample_at(gpu, 0.0, 0.2)
    assert values["sm_active_pct"] == 50.0
    assert values["tensor_active_pct"] is values["dram_active_pct"] is None
    assert "cannot be" in gpu.missing()["dram_active_pct"].reason


@pytest.mark.parametrize("code", [9, 12, 18, 4, 999])
def test_nvml_that_does_not_start_gives_one_reason(code):
    with pytest.raises(Unavailable, match=rf"NVML error {code}"):
        start_nvml(FakeNvml(refuse={"nvmlInit": code}))


def test_columns_are_named_once_and_say_what_they_mean():
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    assert all(column.meaning for column in COLUMNS)
    assert set(GPM_METRICS) <= set(GPU_NAMES)
