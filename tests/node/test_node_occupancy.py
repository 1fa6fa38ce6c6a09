"""Who holds GPU memory is told by process and user, a leftover of ours by name; without a driver nobody does."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pynvml
import pytest
from fake_nvml import FakeNvml

from labkit.node import Gpu, free_bytes, holders, used_mib

GPUS = (Gpu(0), Gpu(1))


@pytest.fixture
def held(monkeypatch):
    """Return a function that says which processes hold how many MiB of GPU 0."""

    def hold(processes, failing=()):
        nvml = FakeNvml(failing)
        memory = SimpleNamespace(total=143771 * 2**20, used=620 * 2**20)
        rows = [SimpleNamespace(pid=pid, usedGpuMemory=mib and mib * 2**20) for pid, mib in processes]
        nvml.answers["nvmlDeviceGetMemoryInfo"] = lambda handle: memory
        nvml.answers["nvmlDeviceGetComputeRunningProcesses"] = lambda handle: rows if handle == "gpu0" else []
        nvml.install(monkeypatch)

    return hold


def sleeper(**environment):
    """Start a process that waits; when this returns it runs, so that the system shows its environment."""
    command = [sys.executable, "-c", "input(1)"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | environment)
    assert process.stdout.read(1) == b"1"
    return process


def test_holders_by_user_and_origin(held):
    stranger, leftover = sleeper(), sleeper(LABKIT_RUN="ab" * 16)
    agent = sleeper(LABKIT_RUN="-" * 32)
    try:
        held([(stranger.pid, 100), (leftover.pid, 2000), (agent.pid, None), (2**22 + 1, 7)])
        found = {holder.pid: holder for holder in holders(GPUS)}
        assert [holder.mib for holder in holders(GPUS)] == [2000, 100, 7, None], "largest first"
        assert found[leftover.pid].ours
        assert "left over from an earlier run of this workbook" in str(found[leftover.pid])
        assert not found[stranger.pid].ours
        assert not found[agent.pid].ours, "an agent that serves a kernel is no leftover"
        assert f"GPU 0: process {stranger.pid} of " in str(found[stranger.pid])
        assert "holds 100 MiB" in str(found[stranger.pid])
        assert "an unknown user holds 7 MiB" in str(found[2**22 + 1])
        assert all(process.poll() is None for process in (stranger, leftover, agent)), "nobody was touched"
    finally:
        for process in (stranger, leftover, agent):
            process.communicate(b"\n")


def test_memory_in_use(held):
    held([])
    assert used_mib(GPUS) == {0: 620, 1: 620}
    assert holders(GPUS) == []


def test_free_memory_is_that_of_the_fullest_gpu_and_of_a_slice_its_own(monkeypatch):
    FakeNvml().install(monkeypatch)
    whole, piece = Gpu(0, uuid="GPU-aa"), Gpu(1, uuid="MIG-cc")
    assert free_bytes([whole]) == 139675 * 2**20
    assert free_bytes([whole, piece]) == 12288 * 2**20
    assert free_bytes([]) is None
    FakeNvml(failing=("nvmlDeviceGetMemoryInfo",)).install(monkeypatch)
    assert free_bytes([whole]) is None


def test_queries_that_fail_and_no_driver(held, monkeypatch):
    held([(1, 5)], failing=("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses"))
    assert used_mib(GPUS) == {}
    assert holders(GPUS) == []

    def no_driver():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    assert (used_mib(GPUS), holders(GPUS)) == ({}, [])
