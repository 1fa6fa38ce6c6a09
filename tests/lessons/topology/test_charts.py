"""Lab 01's charts and node maps: each draws, says its units and source, and no text hides another or leaves it."""

from pathlib import Path

import pytest
from figures import checked
from made import copies_run

from labkit.node import parse_topology
from labkit.repository import PUBLISHED
from lessons import topology

FIXTURES = Path(__file__).parents[2] / "fixtures" / "topology"
MATRICES = sorted([*FIXTURES.glob("*.txt"), *(PUBLISHED / "topology").glob("*.txt")])
DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")  # nearest first


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    slow = {"device": "cpu", "size": "small", "memories": ("pageable",), "pair": 2.1, "own": 5.0}
    runs = {
        "full": copies_run(folder / "full"),
        "small": copies_run(folder / "small", **slow, alone={"pageable": 4.0}, together={"pageable": 3.0}),
        "eight": copies_run(folder / "eight", gpus=8, numa=(0, 1), far=0.7),
        "two": copies_run(folder / "two", gpus=2, pair=900.0),
        "one": copies_run(folder / "one", gpus=1),
    }
    return {name: topology.copies(run) for name, run in runs.items()}


@pytest.mark.parametrize("name", ["full", "small", "eight", "two", "one"])
def test_copy_charts(copies, name):
    here, recorded = copies[name], copies["full"].copy()
    recorded.attrs |= {"source": "recorded on 4 × NVIDIA H200", "recorded": True}
    checked(topology.pairs_chart(here, recorded))
    checked(topology.host_chart(topology.host_rates(here), topology.host_rates(recorded)))
    figure = checked(topology.rates_chart(topology.alone(here), topology.alone(recorded), 300.0))
    for ax in figure.axes:
        dots = [x for collection in ax.collections for x in collection.get_offsets()[:, 0]]
        assert ax.get_xlim()[0] < min(dots) and max(dots) < ax.get_xlim()[1], "a mark is out of sight"


def test_only_gpus_have_a_sum(copies):
    """Processes that share cores do not copy at one time, so their rates do not add up."""
    recorded = topology.host_rates(copies["full"].copy())
    recorded.attrs |= {"source": "recorded on 4 × NVIDIA H200", "recorded": True}
    here, there = topology.host_chart(topology.host_rates(copies["small"]), recorded).axes
    for ax, columns in ((here, 2), (there, 3)):
        assert len(ax.containers) == columns
        assert any("sum" in bars.get_label() for bars in ax.containers) == (columns == 3)


@pytest.mark.parametrize("file", MATRICES, ids=lambda file: file.stem)
def test_node_map(file):
    wiring = parse_topology(file.read_text())
    figure = checked(topology.node_map(wiring, f"as {file.stem} prints it", 26.562), drawing=True)
    (ax,) = figure.axes
    drawn = [text.get_text() for text in ax.texts]
    assert all(device.name in drawn for device in wiring.devices)
    frame = ax.get_window_extent()
    for patch in ax.patches:
        box = patch.get_window_extent()
        assert frame.y0 - 2 <= box.y0, "a line leaves the drawing"
        assert patch.get_path().vertices.shape[0] == 3 or box.y1 <= frame.y1 + 2


@pytest.mark.parametrize("file", MATRICES, ids=lambda file: file.stem)
def test_node_map_joins_each_nic_to_its_nearest_gpus(file):
    wiring = parse_topology(file.read_text())
    (ax,) = topology.node_map(wiring).axes
    middle = {text.get_text(): text.get_position() for text in ax.texts}
    kinds = {device.name: device.kind for device in wiring.devices}
    ends = {tuple(sorted(round(x, 3) for x, _ in (line[0], line[-1]))) for line in arcs(ax) if line[-1][1] < 0}
    expected = set()
    for nic in [name for name, kind in kinds.items() if kind == "nic"]:
        near = {gpu: DISTANCES.index(wiring.path(gpu, nic).kind) for gpu, kind in kinds.items() if kind == "gpu"}
        nearest = [gpu for gpu, far in near.items() if far == min(near.values()) and DISTANCES[far] != "SYS"]
        expected |= {tuple(sorted(round(middle[name][0], 3) for name in (gpu, nic))) for gpu in nearest}
    assert ends == expected


def arcs(ax):
    """Give each drawn line's points: its start, its control point, its end."""
    return [patch.get_path().vertices for patch in ax.patches if len(patch.get_path().vertices) == 3]


def test_node_map_counts_one_link():
    row = "GPU{0}\t{1}\t0-3\n"
    cells = [["X" if a == b else "NV1" for b in range(3)] for a in range(3)]
    text = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\n" + "".join(row.format(n, "\t".join(c)) for n, c in enumerate(cells))
    (ax,) = topology.node_map(parse_topology(text), "", 25).axes
    assert [said for said in (text.get_text() for text in ax.texts) if "1 link ×" in said]
