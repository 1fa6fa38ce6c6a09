"""NVML's answers become fields, failing queries become None, and CUDA_VISIBLE_DEVICES selects as CUDA does."""

import itertools
import re
from dataclasses import replace

import pytest
from fake_nvml import FakeNvml
from hypothesis import given
from hypothesis import strategies as st

from labkit.node import Gpu, gpus

A, B, C = (Gpu(i, "NVIDIA H200", uuid) for i, uuid in enumerate(["GPU-8f3a11", "GPU-8f3b22", "GPU-c0ffee"]))
SLICES = Gpu(1, "NVIDIA H200 MIG 1g.18gb", "MIG-4d2e01"), Gpu(1, "NVIDIA H200 MIG 1g.18gb", "MIG-5aaa02")


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, [A, B, C]),
        ("2,0", [C, A]),
        (" 1 , 0 ", [B, A]),
        ("GPU-c0ffee", [C]),
        ("GPU-8f3b,GPU-8f3a", [B, A]),
        ("GPU-8f3", []),
        ("GPU-8f3a,GPU-8f3,2", [A]),
        ("0,2,-1,1", [A, C]),
        ("0,7,1", [A]),
        ("0,nonsense,1", [A]),
        ("", []),
        ("NoDevFiles", []),
        ("0,0", []),
        ("0,GPU-8f3a", [A]),
        ("GPU-8f3a,0", [A]),
        ("GPU-8f3a,GPU-8f3a11", []),
        ("MIG-4d,GPU-c0ffee", [SLICES[0]]),
        (" GPU-c0ffee", []),
        ("MIG-4d", [SLICES[0]]),
        ("MIG-5aaa02,MIG-4d2e01", [SLICES[1], SLICES[0]]),
        ("MIG-GPU-8f3a11/1/0", []),
        ("²", []),
    ],
)
def test_cuda_visible_devices(variable, expected):
    assert gpus.visible_gpus(variable, [A, B, C], SLICES) == tuple(expected)


TEXTS = """
0-3|0:1|1gpu2,2ampere|0-1,2|1,0-3|+1|+1,1|-1|0,-1,0|0,0,-1|2,2|0,7,7|7,7|7,0|0,7|-0|-00,1|-01|00,1|0,00|01|0x1|1.5
 0,1| 1 , 0 |0 1|0;1|0,,1|,0|0,|all|none|void|1_0|0\t,1|0,1,2,3,4|99999999999999999999,0|GPU-8f3a|GPU-8f3a,0
GPU-8f3|GPU-8f3a,GPU-8f3|GPU-8f3a,GPU-8f3a|GPU-8f3a,GPU-8f3a11|GPU-8f3a, GPU-8f3b|GPU-|gpu-8f3a|GPU-x,GPU-8f3a
GPU-8f3a,GPU-8f3b|GPU-x,GPU-x|0,GPU-8f3a| GPU-8f3a|GPU-8f3b,GPU-8f3a,GPU-c0"""


@pytest.mark.parametrize("variable", re.split("[|\n]", TEXTS))
def test_cuda_visible_devices_as_torch_reads_it(variable, monkeypatch):
    torch_cuda = pytest.importorskip("torch.cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    numbers = torch_cuda._parse_visible_devices()
    if numbers and isinstance(numbers[0], str):
        numbers = torch_cuda._transform_uuid_to_ordinals(numbers, [gpu.uuid for gpu in (A, B, C)])
    expected = list(itertools.takewhile(lambda number: number < 3, numbers))  # as torch.cuda.device_count does
    assert [gpu.index for gpu in gpus.visible_gpus(variable, [A, B, C], SLICES)] == expected


def test_slices_of_one_gpu_count_once_and_are_named():
    """NCCL refuses two ranks on one GPU, also on two slices of it."""
    other = Gpu(2, "NVIDIA H200 MIG 1g.18gb", "MIG-6bbb03")
    assert gpus.one_per_gpu([SLICES[1], other, SLICES[0]]) == (SLICES[1], other)
    assert gpus.one_per_gpu([C, A]) == (C, A)
    assert "because MIG-4d2e01 and MIG-5aaa02 are MIG slices of one GPU" in gpus.why_slices_count_once([*SLICES, other])
    assert gpus.why_slices_count_once([A, B, other]) == gpus.why_slices_count_once([]) == ""


@given(st.text(alphabet="0123,-GPUMIG8fa ") | st.text())
def test_any_cuda_visible_devices_leaves_some_of_the_gpus(variable):
    assert set(gpus.visible_gpus(variable, [A, B, C], SLICES)) <= {A, B, C, *SLICES}


def test_nvml_answers_become_fields(monkeypatch):
    FakeNvml().install(monkeypatch)
    found, slices, driver, cuda = gpus.read_gpus()
    assert (driver, cuda) == ("580.95.05", "13.2")
    known = ("NVIDIA H200", "GPU-aa", "00000000:FF:1F.7", 143771, "9.0", True, False, None, 17, 5, 16, 700.0, 31, True)
    assert found[0] == Gpu(0, *known)
    assert found[1].mig is True
    assert [(s.index, s.name, s.uuid, s.memory_mib, s.nvlinks) for s in slices] == [
        (1, "NVIDIA H200 MIG 1g.18gb", "MIG-cc", 16384, None)
    ]


FIELD_OF = {
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetUUID": "uuid",
    "nvmlDeviceGetMemoryInfo": "memory_mib",
    "nvmlDeviceGetCudaComputeCapability": "compute_capability",
    "nvmlDeviceGetPciInfo": "pci_bus_id",
    "nvmlDeviceGetEccMode": "ecc",
    "nvmlDeviceGetMigMode": "mig",
    "nvmlDeviceGetNvLinkState": "nvlinks",
    "nvmlDeviceGetMaxPcieLinkGeneration": "pcie_generation",
    "nvmlDeviceGetMaxPcieLinkWidth": "pcie_width",
    "nvmlDeviceGetEnforcedPowerLimit": "power_limit_w",
    "nvmlDeviceGetTemperature": "temperature_c",
    "nvmlDeviceGetPersistenceMode": "persistence",
}


@pytest.mark.parametrize("query", FIELD_OF)
def test_a_query_that_fails_leaves_its_field_empty_and_no_other(monkeypatch, query):
    FakeNvml().install(monkeypatch)
    whole = gpus.read_gpus()[0][0]
    FakeNvml(failing=[query]).install(monkeypatch)
    assert gpus.read_gpus()[0][0] == replace(whole, **{FIELD_OF[query]: None})


def test_a_lost_gpu_keeps_its_place(monkeypatch):
    FakeNvml(failing=["nvmlDeviceGetHandleByIndex", *FIELD_OF]).install(monkeypatch)
    assert gpus.read_gpus()[0] == (Gpu(0), Gpu(1))


def test_no_driver_is_no_gpu(monkeypatch):
    FakeNvml(failing=["nvmlInit"]).install(monkeypatch)
    assert gpus.read_gpus() == ((), (), None, None)


def test_a_node_with_amds_gpus_hears_so(monkeypatch, tmp_path):
    FakeNvml(failing=["nvmlInit"]).install(monkeypatch)
    monkeypatch.setattr(gpus, "AMD_DEVICE", tmp_path)
    assert "AMD" in gpus.why_none_is_visible(None) and "NVML" not in gpus.why_none_is_visible(None)


@pytest.mark.parametrize(
    ("failing", "variable", "words"),
    [
        (["nvmlInit"], None, "(NVML says: GPU is lost)"),
        ([], "", "(NVML finds 2, and CUDA_VISIBLE_DEVICES='' hides them)"),
        (["nvmlDeviceGetCount"], None, "(NVML finds 0)"),
    ],
)
def test_why_no_gpu_is_visible_is_said_in_nvmls_words(monkeypatch, failing, variable, words):
    FakeNvml(failing=failing).install(monkeypatch)
    assert gpus.why_none_is_visible(variable) == f"no GPU is visible here {words}"
