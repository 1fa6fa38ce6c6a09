"""Rows of lab 01 → tables, on run folders made by hand: limits and verdicts, sums, near and far, goals; a launch."""

import pytest
from made import copies_run, gpu_node

from labkit.launching import launch
from labkit.node import parse_topology
from labkit.node.topology import Device, Topology
from labkit.provenance import fact
from labkit.tables.goals import scorecard_of
from labkit.tables.published import published_topology
from lessons import topology
from lessons.topology.tables import far_losses

NVLINK, OWN, PCIE = 18 * 26.562, 2400, 64  # an H200's rates in GB/s: links, half its memory's, host


def pairs(run):
    table = topology.copies(run)
    return table[table["source"].notna()].set_index(["source", "target"])


def test_copies_of_pairs_beside_the_datasheet(tmp_path):
    table = pairs(copies_run(tmp_path / "run", odd={(0, 1): 600.0, (2, 3): 40.0}))
    assert len(table) == 16
    assert table.loc[(0, 2), "gb_per_s"] == pytest.approx(396)
    assert table.loc[(0, 2), "spread_gb_per_s"] == pytest.approx(1.98)
    assert table.loc[(0, 2), "count"] == 3
    assert table.loc[(0, 2), "share_of_limit"] == pytest.approx(396 / NVLINK)
    assert table.loc[(1, 1), "share_of_limit"] == pytest.approx(1900 / OWN)
    assert table.loc[[(0, 2), (1, 1), (0, 1), (2, 3)], "verdict"].tolist() == [
        "ok",
        "ok",
        "impossible",
        "suspiciously low",
    ]
    assert table.loc[[(0, 2), (1, 1)], "name"].tolist() == ["GPU → GPU", "within a GPU"]


@pytest.mark.parametrize("knobs", [{"node": gpu_node(4, "NVIDIA Unknown")}, {"device": "cpu", "size": "small"}])
def test_without_a_datasheet_no_limit_is_known(tmp_path, knobs):
    table = topology.copies(copies_run(tmp_path / "run", **knobs))
    assert set(table["verdict"]) == {"no limit known"}
    assert table["share_of_limit"].isna().all()
    assert fact(table, "small") == ("size" in knobs)
    assert table["name"].str.contains("GPU").any() == ("node" in knobs), "processes are not called GPUs"


def test_copies_with_the_host_beside_the_datasheet(tmp_path):
    table = topology.copies(copies_run(tmp_path / "run", alone={"pageable": 10.4, "pinned": 70.0}))
    hosts = table[table["source"].isna()]
    first = hosts[(hosts["rank"] == 0) & (hosts["path"] == "into")].set_index(["memory", "together"])
    assert len(hosts) == 32
    assert len(topology.alone(table)) == 16 + 16
    assert first.loc[("pinned", False), "verdict"] == "impossible"
    assert first.loc[("pinned", True), "share_of_limit"] == pytest.approx(48.3 / PCIE)
    assert first.loc[("pageable", False), "verdict"] == "suspiciously low"


@pytest.mark.parametrize("nodes", [{}, {"numa": (0, 1), "far": 0.6}])
def test_host_rates_sum_over_gpus_each_from_its_best_node(tmp_path, nodes):
    table = topology.host_rates(topology.copies(copies_run(tmp_path / "run", **nodes))).set_index(["path", "memory"])
    assert list(table.index[:2]) == [("into", "pageable"), ("into", "pinned")]
    pinned = table.loc[("into", "pinned")]
    assert pinned["alone_gb_per_s"] == pytest.approx(55)
    assert pinned["sum_gb_per_s"] == pytest.approx(4 * 48.3)
    assert pinned["each_gb_per_s"] == pytest.approx(48.3)
    assert pinned["share_kept"] == pytest.approx(48.3 / 55)


def test_far_losses(tmp_path):
    far = far_losses(topology.copies(copies_run(tmp_path / "two", numa=(0, 1), far=0.6)))
    assert far.tolist() == pytest.approx([0.4] * 4)
    assert far_losses(topology.copies(copies_run(tmp_path / "one"))).empty


def test_matrix():
    table = topology.matrix(parse_topology(published_topology("eml3-4xh100")))
    assert table.loc["GPU0"].tolist() == ["X", "NV18", "NV18", "NV18", "SYS", "0-19", "0"]
    assert table.loc["NIC0", ["GPU3", "CPU affinity"]].tolist() == ["PIX", "N/A"]
    gaps = Device("GPU0", "gpu", cpus=(0, 1, 2, 5, 7, 8), numa=0)
    odd = Device("GPU1", "gpu", unread="CPU Affinity 60-49")
    two = topology.matrix(Topology((gaps, odd), {("GPU0", "GPU1"): "SYS"}))
    assert two["CPU affinity"].tolist() == ["0-2,5,7-8", "unknown (CPU Affinity 60-49)"]


@pytest.mark.parametrize(
    ("knobs", "figures", "met"),
    [
        ({}, [1, 396 / NVLINK, 0], [True, True, True]),
        ({"odd": {(0, 1): 430.0}}, [430 / 396, 396 / NVLINK, 0], [False, True, True]),
        ({"pair": 300.0}, [1, 300 / NVLINK, 0], [True, False, True]),
        ({"alone": {"pageable": 10.4, "pinned": 70.0}}, [1, 396 / NVLINK, 8], [True, True, False]),
    ],
)
def test_goals(tmp_path, knobs, figures, met):
    card = scorecard_of(copies_run(tmp_path / "run", **knobs))
    assert card["measured"].tolist() == pytest.approx(figures, abs=6e-4)
    assert card["met"].tolist() == met


def test_a_launch_on_two_processes_brings_every_byte(elsewhere):
    run = launch(topology.Copies.small(gpus=2, mib=1))
    table = topology.copies(run)
    assert len(table) == 4 + 8
    assert set(table["status"]) == {"ok"}
    assert (table["count"] == run.plan.repeats).all()
    assert set(run.rows["status"]) == {"ok"}
