"""A live node's wiring: nvidia-smi's text, NVML's answers where that cannot be read, a recorded node's without GPUs."""

import os
from dataclasses import replace

import pynvml
import pytest
from fake_nvml import WiredNvml

from labkit.node import Gpu, here, parse_topology, wiring_of
from labkit.node.wiring import readable_matrix

SINGLE, MULTIPLE, BRIDGE = pynvml.NVML_TOPOLOGY_SINGLE, pynvml.NVML_TOPOLOGY_MULTIPLE, pynvml.NVML_TOPOLOGY_HOSTBRIDGE
NODE, SYSTEM, BOARD = pynvml.NVML_TOPOLOGY_NODE, pynvml.NVML_TOPOLOGY_SYSTEM, pynvml.NVML_TOPOLOGY_INTERNAL
NUMA = {0: "0-31", 1: "32-63", 2: ""}
PAIRS = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def gpus(*numa):
    return [Gpu(i, "NVIDIA H200", pci_bus_id=f"00000000:{i:02X}:00.0", numa_node=n) for i, n in enumerate(numa)]


def levels(*of_pairs):
    return dict(zip(PAIRS, of_pairs, strict=True))


MACHINES = {
    "switches": (levels(BOARD, SINGLE, MULTIPLE, BRIDGE, NODE, SYSTEM), {}, "PIX PIX PXB PHB NODE SYS"),
    "nvswitch": (levels(*[SYSTEM] * 6), {g: ["switch"] * 18 for g in range(4)}, "NV18 " * 6),
    "a link down": (levels(*[SYSTEM] * 6), {g: ["switch"] * (18 - (g == 3)) for g in range(4)}, None),
    "bridges": (levels(*[NODE] * 6), {0: [1] * 4, 1: [0] * 4, 2: [3] * 4, 3: [2] * 4}, "NV4 NODE NODE NODE NODE NV4"),
    "to the CPU": (levels(*[SYSTEM] * 6), {g: ["cpu"] * 3 for g in range(4)}, "SYS " * 6),
    "one side told": (levels(*[SYSTEM] * 6), {0: [1, 1, 2]}, "NV2 NV1 SYS SYS SYS SYS"),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_nvml_stands_in_for_a_text_that_cannot_be_read(monkeypatch, machine):
    paths, ends, kinds = MACHINES[machine]
    WiredNvml(4, paths, ends).install(monkeypatch)
    text = readable_matrix("GPU0 what is\nGPU1 this?\n", gpus(0, 0, 1, None), NUMA)
    topology = parse_topology(text)
    expected = (kinds or "NV18 NV18 NV17 NV18 NV17 NV17").split()
    assert topology.links == {(f"GPU{a}", f"GPU{b}"): kind for (a, b), kind in zip(PAIRS, expected, strict=True)}
    assert topology.numa_nodes() == {0: ("GPU0", "GPU1"), 1: ("GPU2",), None: ("GPU3",)}
    assert [device.cpus for device in topology.devices][2:] == [tuple(range(32, 64)), ()]
    assert topology.printed_by == "NVML's matrix"
    assert topology.note.startswith("The matrix comes from NVML instead of nvidia-smi, because its text is not")
    assert "'GPU1 this?'" in topology.note


TWO = "\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV2\t X \n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nvidia-smi is missing, or prints nothing"),
        ("No devices were found\n", "its matrix lacks GPU0, GPU1"),
        ("\tGPU0\nGPU0\t X \n", "its matrix lacks GPU1"),
        (TWO.replace("NV2", "NVL"), "in row GPU0, column GPU1, not 'NVL'"),
        (TWO.replace("NV2", "NV2", 1).replace("GPU1\tNV2", "GPU1\tSYS"), "GPU0 to GPU1 as GPU1 to GPU0"),
    ],
)
def test_the_note_says_why(monkeypatch, text, why):
    WiredNvml(2, {(0, 1): NODE}, {}).install(monkeypatch)
    topology = parse_topology(readable_matrix(text, gpus(0, 0), NUMA))
    assert topology.links == {("GPU0", "GPU1"): "NODE"}
    assert why in topology.note


def test_a_text_that_can_be_read_stays(monkeypatch):
    WiredNvml(2, {(0, 1): NODE}, {}).install(monkeypatch)
    assert readable_matrix(TWO, gpus(0, 0), NUMA) == TWO
    assert parse_topology(TWO).printed_by == "nvidia-smi topo -m"


@pytest.mark.parametrize(
    "failing", ["nvmlInit", "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetNvLinkRemoteDeviceType"]
)
def test_nvml_that_does_not_tell_either_leaves_the_text(monkeypatch, failing):
    WiredNvml(2, {(0, 1): NODE}, {}, failing=[failing]).install(monkeypatch)
    text = readable_matrix("nonsense\n", gpus(0, 0), NUMA)
    assert (text == "nonsense\n") == (failing != "nvmlDeviceGetNvLinkRemoteDeviceType")


def test_links_whose_far_ends_are_not_told_lead_to_a_switch(monkeypatch):
    ends = {0: ["switch"] * 18, 1: ["switch"] * 18}
    failing = ["nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo"]
    WiredNvml(2, {(0, 1): SYSTEM}, ends, failing=failing).install(monkeypatch)
    assert parse_topology(readable_matrix("", gpus(0, 0), NUMA)).links == {("GPU0", "GPU1"): "NV18"}


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """`here` of a machine with four GPUs on NVLink bridges, whose nvidia-smi prints this text."""

    def read(text, visible=None):
        WiredNvml(4, *MACHINES["bridges"][:2]).install(monkeypatch)
        (tmp_path / "text").write_text(text)
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncat {tmp_path}/text\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return here()

    here.cache_clear()
    yield read
    here.cache_clear()


ROWS = "".join(
    f"{name}\t" + "\t".join("X" if name == other else "PIX" for other in ["GPU0", "GPU1", "GPU2", "GPU3"]) + "\n"
    for name in ["GPU0", "GPU1", "GPU2", "GPU3"]
)
SMI = "\tGPU0\tGPU1\tGPU2\tGPU3\n" + ROWS
RECORDED = replace(
    here(), gpus=tuple(gpus(0, 0)), topology_text=TWO, cpu_name="a recorded processor", date="2026-11-21"
)


def test_a_live_node_shows_its_own_wiring(machine):
    read = machine(SMI)
    shown, topology = wiring_of(read, RECORDED)
    assert shown is read
    assert set(topology.links.values()) == {"PIX"}
    assert topology.note == ""


def test_a_live_node_whose_text_nobody_can_read_shows_what_nvml_tells(machine):
    read = machine("Segmentation fault\n")
    shown, topology = wiring_of(read, RECORDED)
    assert shown is read
    assert topology.path("GPU2", "GPU3").nvlinks == 4
    assert "from NVML instead of nvidia-smi" in topology.note


def test_the_matrix_holds_the_visible_gpus(machine):
    read = machine(SMI, visible="3,1")
    _, topology = wiring_of(read, RECORDED)
    assert [device.name for device in topology.devices] == ["GPU1", "GPU3"]
    assert topology.links == {("GPU1", "GPU3"): "PIX"}
    assert parse_topology(read.topology_text).links.keys() > topology.links.keys(), "the text is of all GPUs"


@pytest.mark.parametrize("variable", ["", "-1", "NoDevFiles", "7"])
def test_a_node_whose_gpus_are_hidden_shows_the_recorded_wiring_and_says_so(machine, variable):
    read = machine(SMI, visible=variable)
    assert (read.gpus, read.topology_text) == ((), "")
    shown, topology = wiring_of(read, RECORDED)
    assert shown is RECORDED
    assert topology.links == {("GPU0", "GPU1"): "NV2"}
    said = f"This node has 4 GPUs and none is visible (CUDA_VISIBLE_DEVICES={variable!r} hides them), so the map shows"
    assert topology.note == f"{said} the recorded 2 × NVIDIA H200."


def test_a_node_without_gpus_says_so(monkeypatch):
    WiredNvml(0, {}, {}, failing=["nvmlInit"]).install(monkeypatch)
    shown, topology = wiring_of(replace(RECORDED, gpus=(), topology_text=""), RECORDED)
    assert shown is RECORDED
    assert topology.note.startswith("No GPU is visible here (NVML says: ")


def test_a_node_whose_wiring_nobody_tells_shows_the_recorded_one():
    shown, topology = wiring_of(replace(RECORDED, topology_text="nonsense"), RECORDED)
    assert shown is RECORDED
    assert topology.note.startswith(
        "The wiring of this node is unknown (cannot read this line of the topology: 'nonsense'"
    )
