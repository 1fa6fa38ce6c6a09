"""Each verdict of lab 01 follows its table: said where it holds, its opposite where it does not."""

from dataclasses import replace

import pytest
from made import copies_run

from labkit.node import parse_topology
from labkit.node.topology import Device, Topology
from labkit.tables.published import published_topology
from lessons import topology

RATES = {"pageable": 10.4, "pinned": 55.0}
PROCESSES = {"device": "cpu", "size": "small", "memories": ("pageable",)}


def wired(numa, default="NV18", **odd):
    names = [f"GPU{i}" for i in range(len(numa))]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    links = {(a, b): odd.get(f"p{a[3:]}{b[3:]}", default) for a, b in pairs}
    return Topology(tuple(Device(name, "gpu", (), node) for name, node in zip(names, numa, strict=True)), links)


@pytest.mark.parametrize(
    ("machine", "said", "unsaid"),
    [
        (wired([]), "shows no GPU", "link"),
        (wired([0]), "One GPU", "NUMA"),
        (wired([0, 0, 0, 0]), "NVLink makes every pair of GPUs equal", "differ"),
        (wired([0, 0, 0, 0]), "at one NUMA node", "several"),
        (wired([0, 0, 1, 1]), "GPU0 and GPU1 at NUMA node 0; GPU2 and GPU3 at NUMA node 1", "one NUMA"),
        (wired([0, 0], "PHB"), "Every pair of GPUs is PHB: equal, but without NVLink", "NVLink makes"),
        (wired([0, 0, 0], "SYS", p01="NV4"), "differ** (NV4 and SYS)", "equal"),
        (wired([0, 0, 0], "NV1", p01="NV2"), "differ** (NV1 and NV2)", "equal"),
        (wired([3, None]), "does not tell the NUMA node of GPU1", "one NUMA"),
        (parse_topology(published_topology("h200x4")), "at one NUMA node", "differ"),
        (parse_topology(published_topology("eml3-4xh100")), "GPU0 at NUMA node 0; GPU1, GPU2 and GPU3", "differ"),
    ],
)
def test_placement(machine, said, unsaid):
    text = topology.placement(machine).data
    assert said in text
    assert unsaid not in text


PAIRS = {
    "NVLink makes every pair of GPUs equal": {"default": "NV18"},
    "Every pair of GPUs is SYS: equal, but without NVLink": {"default": "SYS"},
    "Pairs of GPUs differ": {"default": "SYS", "p01": "NODE", "p23": "NODE"},
}
HOSTS = {
    "**the GPUs are at several NUMA nodes**: GPU0 and GPU1 at NUMA node 0; GPU2 and GPU3 at NUMA node 1.": [
        0,
        0,
        1,
        1,
    ],
    "; all GPUs are at one NUMA node.": [0, 0, 0, 0],
    "; the matrix does not tell the NUMA node of GPU0, GPU1, GPU2 and GPU3.": [None] * 4,
    "GPU2 and GPU3 at NUMA node 1; the matrix does not tell the NUMA node of GPU0.": [None, 0, 1, 1],
    "**the GPUs are at several NUMA nodes**, as the map shows.": [0, 1, 2, 3],
}


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("host", HOSTS)
def test_placement_says_what_is_equal_and_what_is_not(pairs, host):
    text = topology.placement(wired(HOSTS[host], **PAIRS[pairs])).data
    assert text.replace("*", "").startswith(pairs)
    assert text.endswith(host)
    assert ("one NUMA node" in text) == (HOSTS[host] == [0, 0, 0, 0])
    assert ("several NUMA nodes" in text) == (len({*HOSTS[host]} - {None}) > 1)


def test_a_note_on_the_matrix_ends_the_verdict():
    noted = replace(wired([0, 0]), note="The matrix comes from NVML instead of nvidia-smi, because it is 1 of 2, 3, 4.")
    assert topology.placement(noted).data.endswith(f"all GPUs are at one NUMA node. {noted.note}")


COPIES = [
    (topology.pairs_alike, {}, "Every pair copies alike", "not alike"),
    (topology.pairs_alike, {"odd": {(0, 2): 396 / 1.04}}, "the fastest is 4.0 % above the slowest", "not alike"),
    (topology.pairs_alike, {"odd": {(1, 2): 99.0}}, "not alike**: the fastest copies 4.0×", "copies alike"),
    (topology.pairs_alike, {"gpus": 1}, "No pair was measured", "alike"),
    (topology.same_bytes, {}, "✔ All 48 copies", "Wrong"),
    (topology.far_node, {}, "the memory of one NUMA node, so there is no other", "costs"),
    (topology.far_node, {"numa": (0, 1), "far": 0.75}, "costs up to 25 %", "next to nothing"),
    (topology.far_node, {"numa": (0, 1), "far": 0.99}, "costs next to nothing", "up to"),
    (topology.beside_datasheet, {"together": RATES}, "reach 79 % to 86 % of the link's rate**", "mistake"),
    (topology.beside_datasheet, {}, "pageable memory, at most 16 %", "mistake"),
    (topology.beside_datasheet, {"pair": 600.0}, "faster than its link allows", "reach"),
    (topology.beside_datasheet, PROCESSES | {"alone": {"pageable": 4.0}}, "No datasheet is known", "reach"),
]
HOST = [
    (topology.pinning, {}, "host → GPU 5.3× and GPU → host 5.3×", "nothing"),
    (topology.pinning, {"alone": {"pageable": 55.0, "pinned": 56.0}}, "gains nothing here", "faster"),
    (topology.pinning, PROCESSES, "no pinned memory to compare", "faster"),
    (topology.together, {}, "each keeps most of its rate alone**: 88 % (host → GPU)", "bottleneck"),
    (topology.together, {"together": {"pageable": 3, "pinned": 14.0}}, "All 4 share one bottleneck", "most"),
    (topology.together, {"together": {"pageable": 3, "pinned": 27.5}}, "each keeps a part of its rate", "most"),
    (topology.together, PROCESSES, "87 % (host → own buffer)", "GPU"),
    (topology.together, {"gpus": 1}, "One GPU alone", "bottleneck"),
]


@pytest.mark.parametrize(("tell", "knobs", "said", "unsaid"), COPIES)
def test_verdicts_on_copies(tmp_path, tell, knobs, said, unsaid):
    text = tell(topology.copies(copies_run(tmp_path / "run", **knobs))).data
    assert said in text
    assert unsaid not in text


@pytest.mark.parametrize(("tell", "knobs", "said", "unsaid"), HOST)
def test_verdicts_on_the_host(tmp_path, tell, knobs, said, unsaid):
    text = tell(topology.host_rates(topology.copies(copies_run(tmp_path / "run", **knobs)))).data
    assert said in text
    assert unsaid not in text


def test_wrong_bytes_are_counted(tmp_path):
    table = topology.copies(copies_run(tmp_path / "run"))
    table.loc[[0, 3], "status"] = "wrong bytes"
    assert "in 2 of 48 copies" in topology.same_bytes(table).data


def test_pairs_whose_repeats_overlap_are_alike(tmp_path):
    table = topology.copies(copies_run(tmp_path / "run", odd={(1, 2): 330.0}))
    assert "not alike" in topology.pairs_alike(table).data
    table["spread_gb_per_s"] = 60.0
    assert "alike**, within noise" in topology.pairs_alike(table).data


def test_size_matters(tmp_path):
    small, large = (topology.copies(copies_run(tmp_path / name, pair=rate)) for name, rate in (("a", 99), ("b", 396)))
    small.attrs["size"] = "1 MiB"
    text = topology.size_matters(small, large).data
    assert "GPU → GPU: 1 MiB is copied at 0.25× the rate of 64 MiB" in text
    assert "| GPU → GPU | 99.0 | 396 |" in text
    assert "| GPU → host (pageable) | 9.75 | 9.75 |" in text and "| GPU → host (pinned) | 51.6 | 51.6 |" in text
    small["spread_gb_per_s"] = 300.0
    assert (
        "On every path 1 MiB and 64 MiB are copied at one rate, within noise"
        in topology.size_matters(small, large).data
    )
    cached = small.assign(gb_per_s=small["gb_per_s"].where(small["path"] != "within", 9e3), spread_gb_per_s=1.0)
    cached.loc[cached["path"] == "between", ["gb_per_s", "spread_gb_per_s"]] = 396.0
    cached.attrs = small.attrs
    told = topology.size_matters(cached, large).data
    assert "within a GPU: 1 MiB is copied at" in told and "Within noise: " in told and "GPU → GPU" in told
    one = topology.copies(copies_run(tmp_path / "one", gpus=1))
    assert "No pair was measured in both sizes" in topology.size_matters(one, large).data


def test_in_one_minute(tmp_path):
    here, recorded = copies_run(tmp_path / "here", **PROCESSES), copies_run(tmp_path / "recorded")
    text = topology.in_one_minute(here, recorded).data
    assert "| no GPU to pin for | host → GPU 5.3× and GPU → host 5.3× |" in text
    assert "| no datasheet for CPU processes | GPU → GPU: 83 % of its rate |" in text
    assert "not measured" in topology.in_one_minute(copies_run(tmp_path / "one", gpus=1), recorded).data


def test_pinned_memory_that_is_faster_one_way_alone_is_told(tmp_path):
    rates = topology.host_rates(topology.copies(copies_run(tmp_path / "run")))
    rates.loc[rates["name"] == rates["name"].iloc[0], "alone_gb_per_s"] = 50.0
    assert "Pinned memory is faster**: GPU → host 5.3×." in topology.pinning(rates).data
