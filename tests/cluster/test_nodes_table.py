"""The nodes of a run as a table and a drawing, from a run that is written by hand; cards from a made /sys."""

from __future__ import annotations

import json

import pytest
from figures import checked
from IPython.display import Markdown
from made import CPU, gpu_node, write_run
from matplotlib.figure import Figure

from labkit.charts.nodes import nodes_map
from labkit.cluster.launch import node_differences
from labkit.node.network import cards, rate_of
from labkit.provenance import fact
from labkit.story.nodes import ONE_NODE, explain_links
from labkit.tables.nodes import nodes_table
from lessons.start.plan import Hello


@pytest.fixture
def two(tmp_path):
    """Return a function that writes a run on two nodes with links of these rates."""

    def made(*gbit_per_s, cards=()):
        count = len(gbit_per_s)
        run = write_run(tmp_path / "run", Hello(gpus=4 * count, device="cuda"), gpu_node())
        run.logs.mkdir(exist_ok=True)
        listed = [{"name": name, "gbit_per_s": 25.0 if name == "eth0" else None} for name in cards]
        networks = tuple({"interface": "ib0", "gbit_per_s": rate, "cards": listed} for rate in gbit_per_s)
        run.write_nodes((gpu_node(),) * count, networks, tuple(f"a{number + 1}" for number in range(count)))
        run.close(
            "finished", clocks=[{"ahead_us": 0.0, "round_trip_us": 0.0}, {"ahead_us": -7.0, "round_trip_us": 40.0}]
        )
        return run

    return made


def drawing_of(run) -> Figure:
    figure = nodes_map(nodes_table(run))
    assert isinstance(figure, Figure)
    return figure


def test_each_node_is_a_row_with_its_ranks_link_and_clock(two):
    run = two(400.0, 100.0)
    table = nodes_table(run)
    assert list(table["ranks"]) == ["0 to 3", "4 to 7"]
    assert list(table["link_gb_per_s"]) == [50.0, 12.5]
    assert list(table["clock_error_us"]) == [0.0, 20.0]
    assert fact(table, "gpu_models") == [run.node.gpus[0].name] * 2


@pytest.mark.parametrize("rates", [(400.0, 100.0), (None, None), (400.0,) * 9])
def test_the_nodes_are_drawn_with_their_cards(two, rates):
    figure = checked(drawing_of(two(*rates, cards=("eth0", "mlx5_0:1"))), drawing=True)
    words = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert ("50.0 GB/s" in words) == (rates[0] is not None) and "ranks 4 to 7" in words
    assert "eth0 · 25 Gbit/s" in words and "mlx5_0:1 · rate not told" in words
    assert figure.axes[0].get_title(loc="left").startswith(f"{len(rates)} nodes")


def test_long_names_and_many_cards_stay_in_their_node(two):
    names = tuple(f"a card with a long name, number {number}" for number in range(12))
    words = [text.get_text() for text in checked(drawing_of(two(400.0, 400.0, cards=names))).axes[0].texts]
    assert words.count("and 4 more") == 2


def test_of_one_node_nothing_is_drawn_and_one_sentence_is_said(two):
    table = nodes_table(two(400.0)).head(1)
    said = nodes_map(table)
    assert isinstance(said, Markdown) and said.data == ONE_NODE
    assert explain_links(table).data == ""


@pytest.mark.parametrize(
    ("rates", "claims", "not_said"),
    [
        ((400.0, 400.0), ("Each node's link carries at most 50.0 GB/s", "478 GB/s: 9.6× as much"), "waits for"),
        ((400.0, 100.0), ("The link of node 1 bounds", "at most 12.5 GB/s", "38× as much"), "Each node's"),
        ((400.0, None), ("does not tell the rate of the link of node 1 (ib0)",), "GB/s"),
    ],
)
def test_the_slowest_link_is_said_with_its_limit(two, rates, claims, not_said):
    said = explain_links(nodes_table(two(*rates))).data or ""
    assert all(claim in said for claim in claims) and not_said not in said


def test_ranks_of_the_second_node_count_their_gpus_anew(two):
    run = two(400.0, 100.0)
    assert (run.gpu(3), run.gpu(4), run.node_index(3), run.node_index(4)) == (3, 0, 0, 1)
    assert run.rank_name(5) == "rank 5 (node 1, a2, GPU 1)"
    assert "2 nodes with 4 × NVIDIA H200 each" in run.source


def test_differences_between_nodes_are_said(two):
    found = node_differences((gpu_node(4), gpu_node(4, "NVIDIA A100")), ("a1", "a2"))
    assert found == ["the nodes of this run have different GPUs (a1: 4 × NVIDIA H200; a2: 4 × NVIDIA A100)"]
    assert node_differences((CPU, CPU), ("a1", "a2")) == []


def test_cards_are_read_from_the_kernel(tmp_path):
    files = {
        "net/eth0/speed": "25000\n",
        "net/eth0/device/numa_node": "1\n",
        "net/eth1/speed": "-1\n",
        "net/eth1/device/numa_node": "-1\n",
        "net/lo/speed": "0\n",
        "infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        "infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
        "infiniband/mlx5_1/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        "infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
        "net/ib0/device/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        "net/ib0/device/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {card.name: (card.kind, card.gbit_per_s, card.numa) for card in cards(tmp_path)}
    assert found["eth0"] == ("Ethernet", 25.0, 1) and found["eth1"] == ("Ethernet", None, None)
    assert found["mlx5_0:1"] == ("InfiniBand", 400.0, None) and found["mlx5_1:1"][1] is None
    assert "lo" not in found
    assert [rate_of(name, tmp_path) for name in ("eth0", "eth1", "ib0")] == [25.0, None, 400.0]


def test_a_recorded_run_tells_no_host_names(two, tmp_path):
    run = two(400.0, 100.0)
    kept = json.dumps(json.loads(run.nodes_file.read_text()))
    assert "a1" not in kept
