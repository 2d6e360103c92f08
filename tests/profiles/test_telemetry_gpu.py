import math
from types import SimpleNamespace

import pytest
from fake_nvml import FakeNvml

from profiles.telemetry.columns import COLUMNS, GPU_NAMES
from profiles.telemetry.counters import Unavailable
from profiles.telemetry.gpm import GPM_METRICS
from profiles.telemetry.gpu import Gpu
from profiles.telemetry.gpu_processes import GpuProcesses
from profiles.telemetry.nvml import start_nvml

MIB = 2**20
COLUMNS_OF = {
    "nvmlDeviceGetUtilizationRates": ["gpu_busy_pct", "memory_busy_pct"],
    "nvmlDeviceGetMemoryInfo": ["memory_used_bytes"],
    "nvmlDeviceGetPowerUsage": ["power_mw"],
    "nvmlDeviceGetTotalEnergyConsumption": ["energy_mj"],
    "nvmlDeviceGetClockInfo": ["sm_clock_mhz", "memory_clock_mhz"],
    "nvmlDeviceGetNvLinkState": ["nvlink_tx_bytes", "nvlink_rx_bytes"],
    "nvmlDeviceGetFieldValues": ["nvlink_tx_bytes", "nvlink_rx_bytes"],
    "nvmlDeviceGetComputeRunningProcesses": ["gpu_processes", "foreign_processes"],
}
EVERY_CALL = [
    name for name in vars(FakeNvml) if name.startswith("nvml") and name != "nvmlMemory_v2"
]


def gpu_of(nvml, uuid="GPU-a", own_pids=(100,), pids_are_ours=True):
    return Gpu(nvml, uuid, GpuProcesses(nvml, lambda: set(own_pids), pids_are_ours))


def sample_at(gpu, *times):
    """The last of several full samples."""
    for t_s in times:
        values = gpu.sample(t_s, full=True)
    return values


def test_every_counter_of_a_hopper_gpu():
    gpu = gpu_of(FakeNvml())
    assert sample_at(gpu, 0.0, 0.1, 0.2) == {
        "gpu_busy_pct": 40.0,
        "memory_busy_pct": 15.0,
        "sm_active_pct": 50.0,
        "sm_occupancy_pct": 25.0,
        "tensor_active_pct": 12.5,
        "tensor_hmma_active_pct": 12.0,
        "tensor_imma_active_pct": 0.5,
        "tensor_dfma_active_pct": 0.0,
        "tensor_dmma_active_pct": 0.25,
        "integer_active_pct": 4.0,
        "fp16_active_pct": 3.0,
        "fp32_active_pct": 2.0,
        "fp64_active_pct": 1.0,
        "dram_active_pct": 75.0,
        "memory_used_bytes": 1 << 30,
        "power_mw": 300_000,
        "energy_mj": 1000,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "temperature_c": 61,
        "throttle_reasons": 4,
        "pcie_tx_bytes_per_s": 10 * MIB,
        "pcie_rx_bytes_per_s": 20 * MIB,
        "nvlink_tx_bytes_per_s": 40 * MIB,
        "nvlink_rx_bytes_per_s": 30 * MIB,
        "nvlink_tx_bytes": 1024 * (13800 + 13801),
        "nvlink_rx_bytes": 1024 * (13900 + 13901),
        "gpu_processes": 2,
        "foreign_processes": 1,
    }
    assert gpu.missing() == {}


@pytest.mark.parametrize("call", COLUMNS_OF)
@pytest.mark.parametrize("code", [3, 4, 13, 15, 18, 999])
def test_each_counter_is_missing_alone_with_its_reason(call, code):
    gpu = gpu_of(FakeNvml(refuse={call: code}))
    values = sample_at(gpu, 0.0, 0.1, 0.2)
    assert [name for name in GPU_NAMES if values[name] is None] == COLUMNS_OF[call]
    missing = gpu.missing()
    assert set(missing) == set(COLUMNS_OF[call])
    for column in missing.values():
        assert f"(NVML error {code})" in column.reason
        assert column.since_t_s == 0.0


@pytest.mark.parametrize("call", EVERY_CALL)
@pytest.mark.parametrize("code", [3, 4, 15])
def test_any_call_may_be_refused_and_whatever_is_missing_has_a_reason(call, code):
    nvml = FakeNvml(refuse={call: code})
    gpu = gpu_of(nvml)
    values = sample_at(gpu, 0.0, 0.1, 0.2, 0.3)
    assert set(values) == set(GPU_NAMES)
    assert {name for name, value in values.items() if value is None} == set(gpu.missing())
    gpu.close()


@pytest.mark.parametrize(
    "call",  # GPM's calls came together, and handles were always there
    [c for c in EVERY_CALL if not c.startswith(("nvmlGpmS", "nvmlGpmM", "nvmlDeviceGetHandle"))],
)
def test_an_older_library_may_lack_any_call(call):
    nvml = FakeNvml()
    nvml.unknown = {call}
    gpu = gpu_of(nvml)
    values = sample_at(gpu, 0.0, 0.1, 0.2)
    gone = {name for name, value in values.items() if value is None}
    assert gone == set(gpu.missing())
    assert all("nvidia-ml-py" in missing.reason for missing in gpu.missing().values())


def test_what_will_never_work_is_asked_once_and_what_may_is_asked_again():
    nvml = FakeNvml(refuse={"nvmlDeviceGetPowerUsage": 3, "nvmlDeviceGetClockInfo": 15})
    sample_at(gpu_of(nvml), 0.0, 0.1, 0.2)
    assert nvml.calls["nvmlDeviceGetPowerUsage"] == 1
    assert nvml.calls["nvmlDeviceGetClockInfo"] == 6  # two clocks


def test_costly_energy_is_read_once_a_second_and_when_all_is_asked_for():
    nvml = FakeNvml()
    gpu = gpu_of(nvml)
    ticks = [gpu.sample(k / 10) for k in range(21)]
    assert [k for k, row in enumerate(ticks) if row["energy_mj"] is not None] == [0, 10, 20]
    assert gpu.missing() == {}
    assert gpu.sample(2.1, full=True)["energy_mj"] == 1000
    assert nvml.calls["nvmlDeviceGetTotalEnergyConsumption"] == 4


def test_counters_that_come_together_cost_one_call():
    nvml = FakeNvml()
    asked = []
    processes = GpuProcesses(nvml, lambda: asked.append(1) or {100}, True)
    gpus = [Gpu(nvml, "GPU-a", processes) for _ in range(2)]
    nvml.pids = [100]
    for gpu in gpus:
        gpu.sample(0.0)
    assert nvml.calls["nvmlDeviceGetUtilizationRates"] == 2
    assert nvml.calls["nvmlDeviceGetFieldValues"] == 2
    assert nvml.calls["nvmlDeviceGetComputeRunningProcesses"] == 2
    assert len(asked) == 1  # children are looked for again only when a pid is new
    nvml.pids = [100, 300]
    assert gpus[0].sample(1.0)["foreign_processes"] == 1
    assert len(asked) == 2


def test_nvlink_counters_are_missing_alone():
    nvml = FakeNvml()
    nvml.nvmlDeviceGetFieldValues = lambda handle, fields: [
        SimpleNamespace(
            nvmlReturn=3 if field == 139 else 0,
            valueType=3,
            value=SimpleNamespace(ullVal=link),
        )
        for field, link in fields
    ]
    gpu = gpu_of(nvml)
    values = gpu.sample(0.0)
    assert (values["nvlink_tx_bytes"], values["nvlink_rx_bytes"]) == (1024, None)
    assert set(gpu.missing()) == {"nvlink_rx_bytes"}


def test_old_drivers_get_the_old_calls():
    nvml = FakeNvml(
        refuse={
            "memory v2": 13,
            "nvmlDeviceGetTemperatureV": 13,
            "nvmlDeviceGetCurrentClocksEventReasons": 13,
        }
    )
    gpu = gpu_of(nvml)
    values = gpu.sample(0.0)
    assert values["memory_used_bytes"] == 2 << 30
    assert values["temperature_c"] == 60
    assert values["throttle_reasons"] == 8
    assert gpu.missing() == {}


def test_lost_gpu_is_a_gap_with_a_reason_and_may_come_back():
    nvml = FakeNvml()
    gpu = gpu_of(nvml)
    sample_at(gpu, 0.0, 0.1, 0.2)
    nvml.refuse = dict.fromkeys(EVERY_CALL, 15)
    assert set(sample_at(gpu, 0.3, 0.4).values()) == {None}
    assert set(gpu.missing()) == set(GPU_NAMES)
    assert {missing.since_t_s for missing in gpu.missing().values()} == {0.3}
    assert "the GPU is lost" in gpu.missing()["sm_active_pct"].reason
    nvml.refuse = {}
    back = gpu.sample(0.5)
    assert back["power_mw"] == 300_000
    assert back["sm_active_pct"] is None  # its window would span the gap
    assert sample_at(gpu, 0.6, 0.7)["sm_active_pct"] == 50.0


def test_unknown_uuid_leaves_every_column_missing():
    gpu = gpu_of(FakeNvml(), "GPU-z")
    assert set(gpu.sample(1.0).values()) == {None}
    assert set(gpu.missing()) == set(GPU_NAMES)


def test_impossible_busy_is_refused_not_clipped():
    nvml = FakeNvml()
    nvml.busy = 250
    gpu = gpu_of(nvml)
    assert gpu.sample(0.0)["gpu_busy_pct"] is None
    assert "250 %" in gpu.missing()["gpu_busy_pct"].reason


def test_gpm_windows_are_longer_than_the_drivers_refresh():
    nvml = FakeNvml()
    gpu = gpu_of(nvml)
    first = gpu.sample(0.0)
    second = gpu.sample(0.1)
    assert first["sm_active_pct"] is second["sm_active_pct"] is None
    assert gpu.missing() == {}  # a window that fills is no fault
    sample_at(gpu, 0.2, 0.3, 0.4)
    assert nvml.gpm_pairs == [(1, 3), (2, 4), (3, 5)]
    assert len(nvml.buffers) == 3
    gpu.close()
    assert nvml.buffers == set()


def test_older_gpus_have_no_gpm_and_ask_pcie_rarely():
    nvml = FakeNvml(gpm=False)
    gpu = gpu_of(nvml)
    rows = [gpu.sample(k / 10) for k in range(21)]
    missing = gpu.missing()
    assert set(missing) == set(GPM_METRICS) - {"pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"}
    assert all("Hopper" in column.reason for column in missing.values())
    assert nvml.calls["nvmlGpmSampleAlloc"] == 0
    assert [k for k, row in enumerate(rows) if row["pcie_tx_bytes_per_s"]] == [0, 20]
    assert (rows[20]["pcie_tx_bytes_per_s"], rows[20]["pcie_rx_bytes_per_s"]) == (5e3, 6e3)


def test_pcie_that_nothing_gives_has_a_reason():
    gpu = gpu_of(FakeNvml(gpm=False, refuse={"nvmlDeviceGetPcieThroughput": 3}))
    assert gpu.sample(0.0)["pcie_rx_bytes_per_s"] is None
    assert "(NVML error 3)" in gpu.missing()["pcie_rx_bytes_per_s"].reason


@pytest.mark.parametrize(("uuid", "mig"), [("GPU-a", True), ("MIG-a", False)])
def test_mig_is_named_as_the_reason(uuid, mig):
    nvml = FakeNvml([uuid], gpm=False, refuse={"nvmlDeviceGetUtilizationRates": 3})
    nvml.mig = mig
    gpu = gpu_of(nvml, uuid)
    gpu.sample(0.0)
    assert "MIG is on" in gpu.missing()["gpu_busy_pct"].reason
    assert "MIG is on" in gpu.missing()["sm_active_pct"].reason


def test_unified_memory_is_named_as_the_reason():
    gpu = gpu_of(FakeNvml(refuse={"nvmlDeviceGetMemoryInfo": 3}))
    gpu.sample(0.0)
    assert "unified memory" in gpu.missing()["memory_used_bytes"].reason


def test_gpu_without_nvlink_and_one_link_that_refuses():
    nvml = FakeNvml()
    nvml.links_up = 0
    gpu = gpu_of(nvml)
    gpu.sample(0.0)
    assert "no NVLink is up" in gpu.missing()["nvlink_tx_bytes"].reason
    nvml = FakeNvml()
    nvml.link_returns = {1: 3}
    gpu = gpu_of(nvml)
    assert gpu.sample(0.0)["nvlink_rx_bytes"] is None
    assert "(NVML error 3)" in gpu.missing()["nvlink_rx_bytes"].reason


def test_in_a_container_processes_are_counted_but_not_told_apart():
    nvml = FakeNvml()
    gpu = gpu_of(nvml, pids_are_ours=False)
    values = gpu.sample(0.0)
    assert (values["gpu_processes"], values["foreign_processes"]) == (2, None)
    assert "2 compute on this GPU" in gpu.missing()["foreign_processes"].reason
    nvml.pids = []
    assert gpu.sample(1.0)["gpu_processes"] is None
    assert "not even this one" in gpu.missing()["gpu_processes"].reason


def test_on_the_host_an_idle_gpu_has_no_process():
    nvml = FakeNvml()
    nvml.pids = []
    values = gpu_of(nvml).sample(0.0)
    assert (values["gpu_processes"], values["foreign_processes"]) == (0, 0)


@pytest.mark.parametrize("call", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc",
                                  "nvmlGpmSampleGet", "nvmlGpmMetricsGet"])  # fmt: skip
def test_gpm_can_be_forbidden(call):
    nvml = FakeNvml(refuse={call: 4})
    gpu = gpu_of(nvml)
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
    nvml.gpm_values |= {10: math.nan, 60: -1.0}
    gpu = gpu_of(nvml)
    values = sample_at(gpu, 0.0, 0.2)
    assert values["sm_active_pct"] == 50.0
    assert values["tensor_active_pct"] is values["dram_active_pct"] is None
    assert "cannot be" in gpu.missing()["dram_active_pct"].reason
    assert "-1 MiB/s, which cannot be" in gpu.missing()["nvlink_rx_bytes_per_s"].reason


@pytest.mark.parametrize("code", [9, 12, 18, 4, 999])
def test_nvml_that_does_not_start_gives_one_reason(code):
    with pytest.raises(Unavailable, match=rf"NVML error {code}"):
        start_nvml(FakeNvml(refuse={"nvmlInit": code}))


def test_columns_are_named_once_and_say_what_they_mean():
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    assert all(column.meaning for column in COLUMNS)
    assert set(GPM_METRICS) <= set(GPU_NAMES)
