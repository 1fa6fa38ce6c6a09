"""Rows of lab 01 → tables, on run folders made by hand: limits and verdicts, sums, near and far, claims, targets."""

from types import SimpleNamespace

import pytest
from made import copies_run, gpu_node

from labkit.node import Device, parse_topology
from labkit.provenance import fact
from labkit.tables.measures import scorecard_of
from labkit.tables.published import published, published_topology
from lessons import topology

NVLINK, OWN, PCIE = 18 * 26.562, 2400, 64  # an H200's rates in GB/s: links, half its memory's, host


def test_copy_matrix_limits(tmp_path):
    table = topology.copy_matrix(copies_run(tmp_path / "run", odd={(0, 1): 600.0, (2, 3): 40.0})).set_index(
        ["source", "target"]
    )
    assert len(table) == 16
    assert table.loc[(0, 2), "gb_per_s"] == pytest.approx(396)
    assert table.loc[(0, 2), "spread_gb_per_s"] == pytest.approx(1.98)
    assert table.loc[(0, 2), "count"] == 3
    assert table.loc[(0, 2), "share_of_limit"] == pytest.approx(396 / NVLINK)
    assert table.loc[(1, 1), "share_of_limit"] == pytest.approx(1900 / OWN)
    assert table.loc[(0, 2), "verdict"] == table.loc[(1, 1), "verdict"] == "ok"
    assert table.loc[(0, 1), "verdict"] == "impossible"
    assert table.loc[(2, 3), "verdict"] == "suspiciously low"


@pytest.mark.parametrize("knobs", [{"node": gpu_node(4, "NVIDIA Unknown")}, {"device": "cpu", "size": "small"}])
def test_without_a_datasheet_no_limit_is_known(tmp_path, knobs):
    run = copies_run(tmp_path / "run", **knobs)
    for table in (topology.copy_matrix(run), topology.host_links(run)):
        assert set(table["verdict"]) == {"no limit known"}
        assert table["share_of_limit"].isna().all()
        assert fact(table, "small") == ("size" in knobs)


def test_host_links_limits(tmp_path):
    table = topology.host_links(copies_run(tmp_path / "run", alone={"pageable": 10.4, "pinned": 70.0}))
    first = table[(table["rank"] == 0) & (table["copy"] == "host_to_gpu")].set_index(["memory", "together"])
    assert len(table) == 32
    assert first.loc[("pinned", False), "verdict"] == "impossible"
    assert first.loc[("pinned", True), "share_of_limit"] == pytest.approx(48.3 / PCIE)
    assert first.loc[("pageable", False), "verdict"] == "suspiciously low"


def test_host_summary_sums_over_gpus(tmp_path):
    table = topology.host_summary(topology.host_links(copies_run(tmp_path / "run"))).set_index(["copy", "memory"])
    assert list(table.index[:2]) == [("host_to_gpu", "pageable"), ("host_to_gpu", "pinned")]
    pinned = table.loc[("host_to_gpu", "pinned")]
    assert pinned["alone_gb_per_s"] == pytest.approx(55)
    assert pinned["all_at_once_gb_per_s"] == pytest.approx(4 * 48.3)
    assert pinned["each_then_gb_per_s"] == pytest.approx(48.3)
    assert pinned["gpus"] == 4
    assert pinned["share_kept"] == pytest.approx(48.3 / 55)


def test_host_summary_counts_the_best_node_of_each_gpu_once(tmp_path):
    links = topology.host_links(copies_run(tmp_path / "run", numa=(0, 1), far=0.6))
    pinned = topology.host_summary(links).set_index(["copy", "memory"]).loc[("host_to_gpu", "pinned")]
    assert len(links) == 64
    assert pinned["alone_gb_per_s"] == pytest.approx(55)
    assert pinned["all_at_once_gb_per_s"] == pytest.approx(4 * 48.3)


def test_numa_effect_with_two_nodes(tmp_path):
    table = topology.numa_effect(topology.host_links(copies_run(tmp_path / "run", numa=(0, 1), far=0.6)))
    assert table["gpu"].tolist() == [0, 1, 2, 3]
    assert table["near"].tolist() == [0, 0, 1, 1]
    assert table["far"].tolist() == [1, 1, 0, 0]
    assert table["near_gb_per_s"].tolist() == pytest.approx([55] * 4)
    assert table["far_gb_per_s"].tolist() == pytest.approx([33] * 4)


def test_numa_effect_is_empty_with_one_node(tmp_path):
    assert topology.numa_effect(topology.host_links(copies_run(tmp_path / "run"))).empty


def test_nominal_by_hand():
    table = topology.nominal("NVIDIA H200", mib=1024)
    assert table["gb_per_s"].tolist() == pytest.approx([4800, NVLINK, 64])
    assert table["ms"].tolist() == pytest.approx([1e3 * 2**30 / (rate * 1e9) for rate in (4800, NVLINK, 64)])
    assert fact(table, "bytes") == 2**30
    assert len(topology.nominal("Tesla T4")) == 2  # it has no NVLink
    assert topology.nominal("NVIDIA Unknown").empty


def test_devices():
    table = topology.devices(parse_topology(published_topology("eml3-4xh100"))).set_index("device")
    assert table.loc["GPU0", ["kind", "numa"]].tolist() == ["gpu", 0]
    assert table.loc["GPU3", "numa"] == 1
    assert table["close_cpus"].tolist()[:2] == ["0-19", "32-51"]
    gaps = Device("GPU0", "gpu", cpus=(0, 1, 2, 5, 7, 8), numa=0)
    odd = Device("GPU1", "gpu", unread="CPU Affinity 60-49")
    two = topology.devices(SimpleNamespace(devices=[gaps, odd]))
    assert two["close_cpus"].tolist() == ["0-2,5,7-8", "unknown (CPU Affinity 60-49)"]
    assert "nic" in set(table["kind"])


def test_gpus_on_nodes_in_short():
    assert topology.on_nodes({"GPU0": 0, "GPU1": 1, "GPU2": 1}) == "0 | 1, 2"
    assert topology.on_nodes({"GPU0": 0, "GPU1": None}) == "0"
    table = topology.claimed_sockets(published("topology_claims"))
    assert table["NUMA node 0"].tolist() == ["GPU0, GPU1", "GPU0, GPU1, GPU2, GPU3"]
    assert table["NUMA node 1"].tolist() == ["GPU2, GPU3", "GPU4, GPU5, GPU6, GPU7"]


@pytest.mark.parametrize(
    ("knobs", "met"),
    [
        ({}, [True, True, True]),
        ({"odd": {(0, 1): 430.0}}, [False, True, True]),
        ({"pair": 300.0}, [True, False, True]),
        ({"alone": {"pageable": 10.4, "pinned": 70.0}}, [True, True, False]),
    ],
)
def test_scorecard(tmp_path, knobs, met):
    card = scorecard_of(copies_run(tmp_path / "run", **knobs))
    assert list(card.columns) == ["lab", "target", "measured", "goal", "unit", "met"]
    assert card["met"].tolist() == met


def test_scorecard_figures(tmp_path):
    card = scorecard_of(copies_run(tmp_path / "run", odd={(0, 1): 430.0}, alone={"pageable": 10.4, "pinned": 70.0}))
    assert card["measured"].tolist() == pytest.approx([430 / 396, 396 / NVLINK, 8], abs=6e-4)
