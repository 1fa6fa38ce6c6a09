"""The node is read with and without a driver, and survives JSON."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import machines
import pytest
from fake_nvml import FakeNvml

from labkit.engine.errors import NotEnoughGpus
from labkit.node import Gpu, Node, here, inventory, parse_topology
from lessons.start import Hello

A, B, C = (Gpu(i, "NVIDIA H200", uuid) for i, uuid in enumerate(["GPU-8f3a11", "GPU-8f3b22", "GPU-c0ffee"]))


def test_this_machine_is_read():
    node = here()
    assert node is here()
    assert node.cores == len(os.sched_getaffinity(0))
    assert node.cpu_name
    assert 0.1 < node.memory_gib < 1e5
    assert node.versions["python"] == sys.version.split()[0]
    assert node.versions["pandas"]
    assert Node.from_json(node.to_json()) == node
    assert len(node.table()) <= 12


def test_the_json_names_no_host_and_no_user():
    text = here().to_json()
    assert os.uname().nodename not in text
    assert os.path.expanduser("~") not in text


def test_reading_the_node_imports_neither_torch_nor_pandas():
    code = "import sys, labkit.node as n; n.here(); print({'torch', 'pandas', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=machines.ROOT)
    assert done.stdout.strip() == "set()"


@pytest.fixture
def fresh(monkeypatch):
    """`here` unread before and after, with two GPUs and this nvidia-smi on the path."""

    def with_smi(folder, script):
        FakeNvml().install(monkeypatch)
        (folder / "nvidia-smi").write_text(script)
        (folder / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
        return here()

    here.cache_clear()
    yield with_smi
    here.cache_clear()


def test_the_node_shows_the_visible_gpus_and_the_topology_of_all(fresh, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bb")
    script = "#!/bin/sh\n[ \"$1 $2\" = 'topo -m' ] && printf '\\tGPU0\\tGPU1\\nGPU0\\tX\\tNV18\\nGPU1\\tNV18\\tX\\n'\n"
    node = fresh(tmp_path, script)
    assert [gpu.uuid for gpu in node.gpus] == ["GPU-bb"]
    assert node.has_gpus
    assert parse_topology(node.topology_text).path("GPU0", "GPU1").nvlinks == 18
    assert Node.from_json(node.to_json()) == node


@pytest.mark.parametrize("variable", ["MIG-a,MIG-b", "MIG-b,MIG-a"])
def test_two_slices_of_one_gpu_are_one_gpu_and_a_launch_on_both_is_refused(fresh, monkeypatch, variable):
    gpu = Gpu(0, "NVIDIA A100", "GPU-aa", mig=True)
    slices = tuple(replace(gpu, name="NVIDIA A100 MIG 3g.40gb", uuid=f"MIG-{name}") for name in "ab")
    monkeypatch.setattr(inventory, "read_gpus", lambda: ((gpu,), slices, "580.1", "13.0"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert [gpu.uuid for gpu in inventory.here().gpus] == [variable[:5]]
    assert Hello().gpus == 1
    with pytest.raises(NotEnoughGpus, match=r"this node shows 1 GPU.* MIG-. and MIG-. are MIG slices of one GPU"):
        Hello(gpus=2)


@pytest.mark.parametrize("script", ["#!/bin/sh\necho broken; exit 9\n", "not a program", "#!/no/such/shell\n"])
def test_a_broken_nvidia_smi_leaves_no_topology(fresh, tmp_path, script):
    assert fresh(tmp_path, script).topology_text == ""


def test_a_hanging_nvidia_smi_leaves_no_topology(monkeypatch):
    def hang(*_, timeout, **__):
        raise subprocess.TimeoutExpired("nvidia-smi", timeout)

    monkeypatch.setattr(inventory.subprocess, "run", hang)
    assert inventory.topology_text() == ""


NUMA = ((0, "0-31"), (1, "32-63"))
NODE = Node((A, B), "AMD EPYC 7B13", 64, NUMA, 503.5, "580.1", "13.0", {"python": "3.12.1"}, "", "2026-11-21")


def test_labels():
    assert NODE.label == "2 × NVIDIA H200"
    assert replace(NODE, gpus=(A, replace(B, name="NVIDIA L4"), C)).label == "2 × NVIDIA H200 + 1 × NVIDIA L4"
    assert replace(NODE, gpus=(Gpu(0),)).label == "1 × unknown GPU"
    assert replace(NODE, gpus=()).label == "64 CPU cores (AMD EPYC 7B13)"
    assert replace(NODE, gpus=(), cores=1).label == "1 CPU core (AMD EPYC 7B13)"


@pytest.mark.parametrize(
    ("cores", "quota", "usable", "label"),
    [
        (96, 7.65, 7.65, "96 CPU cores, 7.65 allowed (AMD EPYC 7B13)"),
        (96, 2.0, 2.0, "96 CPU cores, 2 allowed (AMD EPYC 7B13)"),
        (96, 10, 10, "96 CPU cores, 10 allowed (AMD EPYC 7B13)"),
        (1, 0.5, 0.5, "1 CPU core, 0.5 allowed (AMD EPYC 7B13)"),
        (4, 8.0, 4, "4 CPU cores (AMD EPYC 7B13)"),
        (4, 4.0, 4, "4 CPU cores (AMD EPYC 7B13)"),
        (4, None, 4, "4 CPU cores (AMD EPYC 7B13)"),
    ],
)
def test_a_quota_of_the_control_group_bounds_the_cores(cores, quota, usable, label):
    limited = replace(NODE, gpus=(), cores=cores, quota_cores=quota)
    assert (limited.usable_cores, limited.label) == (usable, label)
    assert Node.from_json(limited.to_json()) == limited
    assert (", " in limited.table().value["cores for us"]) == (usable < cores)


def test_the_node_reads_its_quota(fresh, monkeypatch):
    monkeypatch.setattr(inventory, "cgroup_quota", lambda: 1.5)
    assert inventory.here().quota_cores == 1.5


def test_tables():
    gpu = replace(A, memory_mib=143771, ecc=True, mig=False, nvlinks=18, power_limit_w=700.0, temperature_c=31)
    table = replace(NODE, gpus=(gpu, replace(gpu, index=1, ecc=False))).table().value
    assert table["GPUs"] == "2 × NVIDIA H200"
    assert table["memory per GPU"] == "140 GiB"
    assert table["ECC, MIG, persistence mode"] == "on, off, –; off, off, –"
    assert table["power cap, temperature"] == "700 W, 31 °C"
    assert table["NUMA nodes"] == "0: CPUs 0-31; 1: CPUs 32-63"


def test_json_of_earlier_versions_may_lack_power_and_of_later_ones_have_more_keys():
    record = json.loads(NODE.to_json())
    for gpu in record["gpus"]:
        del gpu["power_limit_w"], gpu["temperature_c"], gpu["persistence"]
    del record["quota_cores"]
    record["gpus"][0]["colour"] = record["power_w"] = 1
    assert Node.from_json(json.dumps(record)) == NODE


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"cores": "many"}, "'cores' is 'many'"),
        ({"gpus": None}, "'gpus' is 'None'"),
        ({"gpus": [1]}, "a Gpu is a JSON object, not '1'"),
        ({"gpus": [{"name": "A"}]}, "a Gpu without 'index'"),
        ({"numa_nodes": [[0]]}, "'numa_nodes' is"),
        ({"numa_nodes": [["0", "0-3"]]}, "'numa_nodes' is"),
        ({"versions": []}, "'versions' is"),
    ],
)
def test_json_that_is_no_node_says_why(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        Node.from_json(json.dumps(json.loads(NODE.to_json()) | change))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"gpus": []}', "[" * 100_000])
def test_garbage_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"a Node|a node"):
        Node.from_json(text)


def test_cpu_name_and_numa_nodes_come_from_the_kernel(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n")
    assert inventory.cpu_name(tmp_path / "cpuinfo") == "Some CPU @ 2 GHz"
    assert inventory.cpu_name(tmp_path / "missing") == os.uname().machine
    for node, cpus in ((10, "8-15"), (2, "0-7")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cpus + "\n")
    assert inventory.read_numa_nodes(tmp_path) == ((2, "0-7"), (10, "8-15"))
