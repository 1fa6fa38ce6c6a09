"""Every topology text reads as its machine, and damaged text names its line."""

import machines
import pytest

from labkit.node import parse_topology
from labkit.node.topology import TopologyError


@pytest.mark.parametrize("name", machines.LINKS)
def test_every_link_is_read(name):
    topology = parse_topology(machines.text(name))
    assert topology.links == machines.LINKS[name]
    for (a, b), kind in machines.LINKS[name].items():
        assert topology.path(a, b).kind == topology.path(b, a).kind == kind


@pytest.mark.parametrize("name", machines.NUMA_NODES)
def test_every_device_is_on_its_numa_node(name):
    expected = {numa: tuple(names.split()) for numa, names in machines.NUMA_NODES[name].items()}
    assert parse_topology(machines.text(name)).numa_nodes() == expected


@pytest.mark.parametrize("name", machines.CPUS)
def test_affinity_lists_and_labels_are_read(name):
    devices = {device.name: device for device in parse_topology(machines.text(name)).devices}
    for device, cpus in machines.CPUS[name].items():
        assert devices[device].cpus == tuple(cpus)
    for device, label in machines.LABELS.get(name, {}).items():
        assert devices[device].label == label
        assert devices[device].kind == "nic"
    assert {device: d.unread for device, d in devices.items() if d.unread} == machines.UNREAD.get(name, {})


def test_every_fixture_has_an_expectation_and_an_entry():
    names = {path.stem for folder in machines.FOLDERS for path in folder.glob("*.txt")}
    assert names == set(machines.LINKS) == set(machines.NUMA_NODES)
    readme = (machines.FOLDERS[0] / "README.md").read_text()
    assert [name for name in names if f"`{name}" not in readme] == []


def test_paths_say_what_they_mean():
    topology = parse_topology(machines.text("dgx1"))
    assert topology.path("GPU0", "GPU3").nvlinks == 2
    assert topology.path("GPU0", "GPU1").meaning == "1 NVLink, direct or through NVSwitch"
    assert topology.path("GPU3", "GPU0").meaning == "2 bonded NVLinks, direct or through NVSwitch"
    assert topology.path("GPU0", "GPU7").nvlinks == 0
    assert "NUMA nodes" in topology.path("GPU0", "GPU7").meaning
    assert topology.path("GPU5", "GPU5").kind == "X"
    with pytest.raises(KeyError, match="no device 'GPU8'"):
        topology.path("GPU0", "GPU8")


def test_windows_line_ends_and_colours_change_nothing():
    text = machines.text("nvswitch_8gpu")
    assert parse_topology(text.replace("\n", "\r\n")) == parse_topology(text)
    assert parse_topology(text.replace("NV18", "\x1b[1;32mNV18\x1b[0m")) == parse_topology(text)
    assert parse_topology(text.replace("Legend:", "Légende :")).links == parse_topology(text).links


def test_a_nic_between_two_nodes_has_none():
    text = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\tNODE\t0-3\t0\n"
    text += "GPU1\tSYS\t X \tNODE\t4-7\t1\nNIC0\tNODE\tNODE\t X \n"
    assert parse_topology(text).numa_nodes() == {0: ("GPU0",), 1: ("GPU1",), None: ("NIC0",)}


def test_blank_affinities_are_placed_only_where_the_text_places_them():
    one = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t{}\n"
    assert parse_topology(one.format("0-7\t\t\tN/A")).devices[0].cpus == tuple(range(8))
    for unclear, quoted in (("\t0\t\tN/A", "0 N/A"), ("0-7\t0", "0-7 0"), ("7\t\t\t0", "7 0")):
        (gpu,) = parse_topology(one.format(unclear)).devices
        assert (gpu.cpus, gpu.numa, gpu.unread) == ((), None, f"affinities {quoted}")


TWO = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-3\t0\nGPU1\tNV4\t X \t4-7\t0\n"


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ("GPU1\tNV4", "GPU1\tNV2", "GPU0\t X \tNV4", "which is NV2"),
        ("GPU0\t X \tNV4", "GPU0\t X \tNVL", "GPU0\t X \tNVL", "in row GPU0, column GPU1, not 'NVL'"),
        ("NV4", "NVLINK", "GPU0\t X \tNVLINK", "in row GPU0, column GPU1, not 'NVLINK'"),
        ("GPU1\tNV4\t X ", "GPU1\tNV4\tNV4", "GPU1\tNV4\tNV4", "X on the diagonal"),
        ("GPU1\tNV4\t X \t4-7\t0\n", "", "CPU Affinity", "none for GPU1"),
        (
            "\tGPU0\tGPU1\tCPU",
            "\tGPU0\tCPU",
            "GPU0\t X ",
            "a link for each of GPU0 in row GPU0, .* not another link 'NV4'",
        ),
        ("4-7\t0\n", "4-7\t0\nGPU2\tNV4\tNV4\t8-9\t0\n", "GPU2\tNV4", "one row for each"),
        ("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n", "", "GPU0\t X ", "a header"),
        (
            "\t X \t4-7\t0\n",
            "",
            "GPU1\tNV4",
            "row GPU1, column GPU1 is missing: the text ends here and may be cut short",
        ),
        ("\t X \t4-7\t0\n", "\n", "GPU1\tNV4", "row GPU1, column GPU1 is missing$"),
        ("4-7\t0\n", "NV4\t0\n", "GPU1\tNV4", "row GPU1, and then affinities, not another link"),
        (
            "NUMA Affinity",
            "Affinité NUMA",
            "Affinité NUMA",
            "one of CPU Affinity, .*, not 'Affinité'",
        ),
        ("NUMA Affinity", "CPU Affinity", "CPU Affinity\tCPU Affinity", "each device once"),
    ],
)
def test_damaged_links_are_an_error_that_quotes_the_line(old, new, line, expected):
    assert parse_topology(TWO).links == {("GPU0", "GPU1"): "NV4"}
    assert old in TWO
    with pytest.raises(TopologyError, match=expected) as error:
        parse_topology(TWO.replace(old, new))
    assert line in error.value.line


@pytest.mark.parametrize(
    ("affinities", "cpus", "numa", "unread"),
    [
        ("7-4\t0", [], 0, "CPU Affinity 7-4"),
        ("4-7777777\t0", [], 0, "CPU Affinity 4-7777777"),
        ("4-7,5-9\t0", [], 0, "CPU Affinity 4-7,5-9"),
        ("4–7\t0", [], 0, "CPU Affinity 4–7"),
        ("4-7\t1-0", range(4, 8), None, "NUMA Affinity 1-0"),
        ("7-4\t?", [], None, "CPU Affinity 7-4; NUMA Affinity ?"),
        ("4-7 0", range(4, 8), 0, ""),
        ("4-7\t0\t0", [], None, "affinities 4-7 0 0"),
        ("4-7", range(4, 8), None, ""),
        ("N/A\tN/A", [], None, ""),
    ],
)
def test_an_affinity_that_cannot_be_read_costs_no_link(affinities, cpus, numa, unread):
    topology = parse_topology(TWO.replace("4-7\t0", affinities))
    assert topology.links == {("GPU0", "GPU1"): "NV4"}
    first, second = topology.devices
    assert (first.cpus, first.numa, first.unread) == ((0, 1, 2, 3), 0, "")
    assert (second.cpus, second.numa, second.unread) == (tuple(cpus), numa, unread)


@pytest.mark.parametrize("entry", ["  NIC0: mlx5\x005_0\n", "  NIC0:\n", "  NIC0: mlx5_0"])
def test_a_label_that_cannot_be_read_costs_no_link(entry):
    text = "\tGPU0\tNIC0\nGPU0\t X \tPIX\nNIC0\tPIX\t X \n\nNIC Legend:\n\n"
    assert parse_topology(text + "  NIC0: mlx5_0\n").devices[1].label == "mlx5_0"
    topology = parse_topology(text + entry)
    assert topology.links == {("GPU0", "NIC0"): "PIX"}
    assert topology.devices[1].label == ""


def test_a_list_that_names_a_cpu_twice_is_not_read():
    """Each "0-99999" would be 100 000 numbers: a long line of them filled the memory."""
    many = ",".join(["0-99999"] * 100)
    assert parse_topology(TWO.replace("4-7", many)).devices[1].cpus == ()


@pytest.mark.parametrize(
    "text", ["", "\n", "NVIDIA-SMI has failed because it could not communicate\n", "\x00\xff" * 99]
)
def test_other_texts_are_errors(text):
    with pytest.raises(TopologyError, match="a header of GPU names"):
        parse_topology(text)


def test_two_different_headers_are_an_error():
    with pytest.raises(TopologyError, match="one header only"):
        parse_topology(TWO + "\tGPU1\tGPU0\n")
