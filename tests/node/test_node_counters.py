"""A GPU's counters: what the driver answers is kept, what it does not answer is absent, and never zero."""

from dataclasses import fields, replace

import pynvml
import pytest
from fake_nvml import FakeNvml

from labkit.node import Gpu
from labkit.node.conditions import GpuState
from labkit.node.counters import Counters

WHOLE = GpuState(
    gpu=0,
    sm_clock_mhz=1755,
    sm_clock_most_mhz=1980,
    memory_clock_mhz=3201,
    throttle_reasons=("power cap",),
    temperature_c=31,
    power_w=612.5,
    power_limit_w=700.0,
    utilisation_percent=97,
    memory_mib=4096,
    ecc_corrected=0,
    ecc_uncorrected=2,
    remapped_rows=3,
    pcie_generation=4,
    pcie_generation_most=5,
    pcie_width=8,
    pcie_width_most=16,
    nvlinks_up=17,
    nvlink_errors=1,
    other_processes=0,
    other_mib=0,
    power_throttled_s=2.5,
    heat_throttled_s=0.0,
)


def test_all_that_the_driver_tells(monkeypatch):
    FakeNvml().install(monkeypatch)
    assert Counters(Gpu(0, uuid="GPU-aa")).state() == WHOLE


QUERIES = {
    "nvmlDeviceGetUtilizationRates": ["utilisation_percent"],
    "nvmlDeviceGetMemoryInfo": ["memory_mib"],
    "nvmlDeviceGetPowerUsage": ["power_w"],
    "nvmlDeviceGetCurrentClocksEventReasons": ["throttle_reasons"],
    "nvmlDeviceGetTotalEccErrors": ["ecc_corrected", "ecc_uncorrected"],
    "nvmlDeviceGetNvLinkState": ["nvlinks_up"],
    "nvmlDeviceGetNvLinkErrorCounter": ["nvlink_errors"],
    "nvmlDeviceGetViolationStatus": ["power_throttled_s", "heat_throttled_s"],
    "nvmlDeviceGetComputeRunningProcesses": ["other_processes", "other_mib"],
    "nvmlDeviceGetCurrPcieLinkWidth": ["pcie_width"],
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_that_fails_leaves_its_fields_unknown_and_no_other(monkeypatch, query):
    FakeNvml(failing=[query]).install(monkeypatch)
    counters = Counters(Gpu(0, uuid="GPU-aa"))
    assert counters.state() == replace(WHOLE, **dict.fromkeys(QUERIES[query]))
    assert not {*QUERIES[query]} & {*counters.sample()}


def test_older_gpus_retire_pages(monkeypatch):
    FakeNvml(failing=["nvmlDeviceGetRemappedRows"]).install(monkeypatch)
    assert Counters(Gpu(0)).state().remapped_rows == 3


def test_a_lost_gpu_tells_nothing(monkeypatch):
    nvml = FakeNvml()
    nvml.install(monkeypatch)
    counters = Counters(Gpu(0, uuid="GPU-aa"))
    assert counters.sample()["memory_mib"] == 4096
    FakeNvml(failing=nvml.answers).install(monkeypatch)
    assert counters.sample() == {}
    assert counters.state() == GpuState(0)
    assert Counters(Gpu(0, uuid="GPU-aa")).state() == GpuState(0), "nor where it was never there"


def test_no_driver_is_no_counter():
    """The real library of this machine, or none: a query that was never made possible raises, and is not zero."""
    state = Counters(Gpu(7, uuid="GPU-of-nobody")).state()
    assert all(getattr(state, field.name) is None for field in fields(state) if field.name != "gpu")


def test_a_slice_is_asked_by_its_name(monkeypatch):
    FakeNvml().install(monkeypatch)
    sample = Counters(Gpu(1, uuid="MIG-cc")).sample()
    assert sample["memory_mib"] == 4096
    assert "utilisation_percent" not in sample


def test_traffic_is_the_growth_of_a_counter(monkeypatch):
    nvml, now = FakeNvml(), [100.0]
    nvml.install(monkeypatch)
    monkeypatch.setattr("labkit.node.counters.time.monotonic", lambda: now[0])
    counters = Counters(Gpu(0))
    assert "nvlink_tx_gb_per_s" not in counters.sample("nvlink"), "one reading is no rate"
    now[0], nvml.counted_kib = 100.5, 10**9 // 1024
    assert not [name for name in counters.sample() if "gb_per_s" in name], "it takes long, and is read in turns"
    assert counters.sample("nvlink")["nvlink_tx_gb_per_s"] == pytest.approx(2.0, abs=0.001)
    now[0], nvml.counted_kib = 101.0, 5
    assert "nvlink_tx_gb_per_s" not in counters.sample("nvlink"), "a counter that went back tells nothing"


def test_traffic_over_pcie(monkeypatch):
    FakeNvml().install(monkeypatch)
    counters = Counters(Gpu(0))
    assert counters.sample("pcie_rx")["pcie_rx_gb_per_s"] == 55.0
    assert counters.sample("pcie_tx")["pcie_tx_gb_per_s"] == 0.0, "an idle link, which the driver counts"
    FakeNvml(failing=["nvmlDeviceGetPcieThroughput"]).install(monkeypatch)
    assert "pcie_tx_gb_per_s" not in counters.sample("pcie_tx")


def test_a_narrow_counter_overflows_and_is_not_used(monkeypatch):
    nvml = FakeNvml()
    wide = nvml.answers["nvmlDeviceGetFieldValues"]

    def narrow(handle, wanted):
        values = wide(handle, wanted)
        for value in values:
            value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        return values

    nvml.answers["nvmlDeviceGetFieldValues"] = narrow
    nvml.install(monkeypatch)
    counters = Counters(Gpu(0))
    counters.sample("nvlink")
    assert not [name for name in counters.sample("nvlink") if "gb_per_s" in name]


def test_an_idle_gpu_is_not_throttled(monkeypatch):
    FakeNvml.reasons, before = pynvml.nvmlClocksEventReasonGpuIdle, FakeNvml.reasons
    try:
        FakeNvml().install(monkeypatch)
        assert Counters(Gpu(0)).sample()["throttle_reasons"] == []
    finally:
        FakeNvml.reasons = before
