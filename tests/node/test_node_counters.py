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
    throttle_reasons=("power cap",),
    temperature_c=31,
    power_w=612.5,
    power_limit_w=700.0,
    utilisation_percent=97,
    memory_mib=4096,
    ecc_uncorrected=2,
    pcie_generation_most=5,
    pcie_width=8,
    nvlinks_up=17,
    nvlink_errors=1,
    other_processes=0,
    power_throttled_s=2.5,
    heat_throttled_s=0.0,
)


@pytest.fixture
def nvml(monkeypatch):
    """The driver of a machine with two GPUs."""
    nvml = FakeNvml()
    nvml.install(monkeypatch)
    return nvml


@pytest.fixture
def now(monkeypatch):
    """The clock, as a list of one number that a test sets."""
    now = [0.0]
    monkeypatch.setattr("labkit.node.counters.time.monotonic", lambda: now[0])
    return now


def rates(sample: dict) -> list[str]:
    """Return the names of the rates of traffic in a sample."""
    return [name for name in sample if "gb_per_s" in name]


def test_all_that_the_driver_tells(nvml):
    assert Counters(Gpu(0, uuid="GPU-aa")).state() == WHOLE


QUERIES = {
    "nvmlDeviceGetUtilizationRates": ["utilisation_percent"],
    "nvmlDeviceGetMemoryInfo": ["memory_mib"],
    "nvmlDeviceGetPowerUsage": ["power_w"],
    "nvmlDeviceGetCurrentClocksEventReasons": ["throttle_reasons"],
    "nvmlDeviceGetTotalEccErrors": ["ecc_uncorrected"],
    "nvmlDeviceGetNvLinkState": ["nvlinks_up"],
    "nvmlDeviceGetNvLinkErrorCounter": ["nvlink_errors"],
    "nvmlDeviceGetViolationStatus": ["power_throttled_s", "heat_throttled_s"],
    "nvmlDeviceGetComputeRunningProcesses": ["other_processes"],
    "nvmlDeviceGetCurrPcieLinkWidth": ["pcie_width"],
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_that_fails_leaves_its_fields_unknown_and_no_other(monkeypatch, query):
    FakeNvml(failing=[query]).install(monkeypatch)
    counters = Counters(Gpu(0, uuid="GPU-aa"))
    assert counters.state() == replace(WHOLE, **dict.fromkeys(QUERIES[query]))
    assert not {*QUERIES[query]} & {*counters.sample()}


def test_only_links_that_exist_are_asked_for_errors(nvml, monkeypatch):
    asked = []
    nvml.answers["nvmlDeviceGetNvLinkErrorCounter"] = lambda handle, link, kind: asked.append(link) or 0
    nvml.install(monkeypatch)
    assert Counters(Gpu(0)).state().nvlinks_up == 17
    assert asked == list(range(18)), "each takes the driver a millisecond, and NVML knows twice as many"


def test_other_processes_are_counted_again_without_the_rest(nvml, monkeypatch):
    counters = Counters(Gpu(0, uuid="GPU-aa"))
    busy = replace(counters.state(), other_processes=3)
    rest = [name for name in nvml.answers if "Process" not in name and "Handle" not in name and name != "nvmlInit"]
    FakeNvml(failing=rest).install(monkeypatch)
    assert counters.with_other_processes(busy) == WHOLE


def test_a_lost_gpu_tells_nothing(nvml, monkeypatch):
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


def test_a_slice_is_asked_by_its_name(nvml):
    sample = Counters(Gpu(1, uuid="MIG-cc")).sample()
    assert sample["memory_mib"] == 4096
    assert "utilisation_percent" not in sample


def test_traffic_is_the_growth_of_a_counter(nvml, now):
    now[0], counters = 100.0, Counters(Gpu(0))
    assert "nvlink_tx_gb_per_s" not in counters.sample("nvlink"), "one reading is no rate"
    now[0], nvml.counted_kib = 100.5, 10**9 // 1024
    assert not rates(counters.sample()), "it takes long, and is read in turns"
    assert counters.sample("nvlink")["nvlink_tx_gb_per_s"] == pytest.approx(2.0, abs=0.001)
    now[0], nvml.counted_kib = 101.0, 5
    assert "nvlink_tx_gb_per_s" not in counters.sample("nvlink"), "a counter that went back tells nothing"


# Seconds and GB/s that GPU 0 of 2 × H200 sent over NVLink: a step on its own, then DDP's all-reduces, then an end.
STEPS = ((12.955, 0.0), (14.084, 0.0), (15.099, 0.0), (17.182, 2.34), (18.453, 1.925), (19.425, 1.988), (20.4, 0.0))
UNFED = tuple((at_s, 0.0) for at_s, _ in STEPS)  # the same steps where the driver does not feed the counter


@pytest.mark.parametrize(("recorded", "told"), [(STEPS, [2.34, 1.925, 1.988, 0.0]), (UNFED, [])])
def test_a_counter_that_has_not_grown_tells_nothing(nvml, now, recorded, told):
    nvml.counted_kib, now[0] = 28_705_935, recorded[0][0]  # since the driver was loaded
    counters, found = Counters(Gpu(0)), []
    for at_s, rate in recorded:
        nvml.counted_kib += round(rate * 1e9 * (at_s - now[0]) / 1024)
        now[0] = at_s
        found += [rate for name, rate in counters.sample("nvlink").items() if name == "nvlink_tx_gb_per_s"]
    assert found == pytest.approx(told, abs=0.001)


def test_traffic_over_pcie(nvml, monkeypatch):
    counters = Counters(Gpu(0))
    assert counters.sample("pcie")["pcie_rx_gb_per_s"] == 55.0
    nvml.answers["nvmlDeviceGetPcieThroughput"] = lambda handle, direction: 0
    nvml.install(monkeypatch)
    assert counters.sample("pcie")["pcie_rx_gb_per_s"] == 0.0, "an idle link, which the driver counts"
    FakeNvml(failing=["nvmlDeviceGetPcieThroughput"]).install(monkeypatch)
    assert "pcie_rx_gb_per_s" not in counters.sample("pcie")


def test_a_narrow_counter_overflows_and_is_not_used(nvml, monkeypatch):
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
    nvml.counted_kib = 10**6
    assert not rates(counters.sample("nvlink"))


def test_an_idle_gpu_is_not_throttled(nvml):
    nvml.reasons = pynvml.nvmlClocksEventReasonGpuIdle
    assert Counters(Gpu(0)).sample()["throttle_reasons"] == []
