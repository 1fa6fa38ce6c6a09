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


def test_all_that_the_driver_tells(nvml):
    assert Counters(Gpu(0, uuid="GPU-aa")).state() == WHOLE


QUERIES = {
    "nvmlDeviceGetUtilizationRates": ["utilisation_percent"],
    "nvmlDeviceGetMemoryInfo": ["memory_mib"],
    "nvmlDeviceGetPowerUsage": ["power_w"],
    "nvmlDeviceGetCurrentClocksEventReasons": ["throttle_reasons"],
    "nvmlDeviceGetTotalEccErrors": ["ecc_uncorrected"],
    "nvmlDeviceGetNvLinkErrorCounter": ["nvlink_errors"],
    "nvmlDeviceGetViolationStatus": ["power_throttled_s", "heat_throttled_s"],
    "nvmlDeviceGetComputeRunningProcesses": ["other_processes"],
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
    assert Counters(Gpu(0)).state().nvlink_errors == 0
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


def test_an_idle_gpu_is_not_throttled(nvml):
    nvml.reasons = pynvml.nvmlClocksEventReasonGpuIdle
    assert Counters(Gpu(0)).sample()["throttle_reasons"] == []
