"""Each sentence of lab 01 follows its table: said where the claim holds, its opposite where it does not."""

from pathlib import Path

import pandas as pd
import pytest
from made import attributed

from labkit.node import parse_topology
from labkit.node.topology import Device, Topology
from labkit.story.words import SMALL_NOTE
from labkit.tables.published import published_topology
from lessons import topology

NAN = float("nan")
ODD = Path(__file__).parents[2] / "fixtures" / "topology" / "odd_cpu_list.txt"


def wired(numa, default="NV18", **odd):
    names = [f"GPU{i}" for i in range(len(numa))]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    links = {(a, b): odd.get(f"p{a[3:]}{b[3:]}", default) for a, b in pairs}
    return Topology(tuple(Device(name, "gpu", (), node) for name, node in zip(names, numa, strict=True)), links)


@pytest.mark.parametrize(
    ("machine", "said", "unsaid"),
    [
        (wired([]), "shows no GPU", "link"),
        (wired([0]), "One GPU: no link between GPUs", "NUMA"),
        (wired([0, 0, 0, 0]), "**NVLink makes every pair equal**: 18 links between any two of the 4 GPUs", "differ"),
        (wired([0, 0, 0, 0]), "All GPUs hang at one NUMA node", "NUMA does not"),
        (
            wired([0, 0, 1, 1]),
            "**NUMA does not make them equal**: GPU0, GPU1 at node 0 and GPU2, GPU3 at node 1",
            "one NUMA",
        ),
        (wired([0, 0], "PHB"), "Every pair of the 2 GPUs is PHB: alike, but without NVLink", "NVLink makes"),
        (wired([0, 0, 0], "SYS", p01="NV4"), "**Pairs differ** (NV4 and SYS)", "equal"),
        (wired([0, 0, 0], "NV1", p01="NV2"), "**Pairs differ** (NV1 and NV2)", "equal"),
        (wired([None, None]), "does not tell which NUMA node GPU0 and GPU1 hang at", "one NUMA"),
        (wired([3, None]), "does not tell which NUMA node GPU1 hangs at", "one NUMA"),
        (parse_topology(published_topology("h200x4")), "All GPUs hang at one NUMA node", "differ"),
        (parse_topology(published_topology("eml3-4xh100")), "GPU0 at node 0 and GPU1, GPU2, GPU3 at node 1", "differ"),
    ],
)
def test_placement(machine, said, unsaid):
    text = topology.explain_placement(machine).data
    assert said in text
    assert unsaid not in text


def test_placement_says_which_affinity_could_not_be_read():
    text = topology.explain_placement(parse_topology(ODD.read_text())).data
    assert "GPU5 (CPU Affinity 20-39,60-49)" in text
    assert "unknown" in text
    assert "cannot be read" not in topology.explain_placement(parse_topology(published_topology("h200x4"))).data


def test_a_single_link_is_one_link():
    assert ": 1 link between any two of the 3 GPUs" in topology.explain_placement(wired([0, 0, 0], "NV1")).data


def matrix(rates, *, nominal=478.0, verdict="ok", small=False, gpus=3):
    pairs = [(a, b) for a in range(gpus) for b in range(gpus)]
    rows = [
        {"source": a, "target": b, "gb_per_s": 1900.0 if a == b else rates.get((a, b), rates[None]), "verdict": verdict}
        for a, b in pairs
    ]
    table = attributed(rows, small=small)
    table["share_of_limit"] = table["gb_per_s"] / nominal
    return table


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (
            matrix({None: 396.0}),
            ("**Every pair copies alike**: 396 GB/s", "83 % of its links' datasheet rate", "No measurement is faster"),
            "not alike",
        ),
        (
            matrix({None: 396.0, (0, 2): 396 / 1.04}),
            ("**Every pair copies alike**", "4.0 % above the slowest"),
            "not alike",
        ),
        (
            matrix({None: 396.0, (1, 2): 99.0}),
            ("**Pairs are not alike**: 1 → 2 reaches 99.0 GB/s", "4.0× that"),
            "copies alike",
        ),
        (
            matrix({None: 396.0}, verdict="impossible"),
            ("**9 measurement(s) are faster than the datasheet allows**",),
            "No measurement is",
        ),
        (
            matrix({None: 50.0}, verdict="suspiciously low"),
            ("9 measurement(s) are below a quarter",),
            "No measurement is",
        ),
        (matrix({None: 3.0}, nominal=NAN, verdict="no limit known", small=True), (SMALL_NOTE,), "datasheet"),
        (matrix({None: 3.0}, nominal=NAN, verdict="no limit known"), ("Every pair copies alike",), "median pair"),
        (matrix({None: 1.0}, gpus=1), ("No pair of GPUs was measured.",), "alike"),
        (matrix({None: NAN}, verdict="not measured"), ("No pair of GPUs was measured.",), "alike"),
    ],
)
def test_matrix(table, said, unsaid):
    text = topology.explain_matrix(table).data
    assert all(part in text for part in said)
    assert unsaid not in text


def summary(pageable=10.4, pinned=55.0, kept=0.88, gpus=4, small=False):
    rows = [
        {
            "copy": "host_to_gpu",
            "memory": memory,
            "alone_gb_per_s": rate,
            "all_at_once_gb_per_s": rate * kept * gpus,
            "each_then_gb_per_s": rate * kept,
            "gpus": gpus,
            "share_kept": kept,
        }
        for memory, rate in (("pageable", pageable), ("pinned", pinned))
        if rate
    ]
    made = attributed(rows, small=small)
    return made if rows else made.assign(copy=[])


def both(into, out):
    return attributed([*into.to_dict("records"), *out.assign(copy="gpu_to_host").to_dict("records")], small=False)


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (
            summary(),
            ("**pinned memory gives 5.3× the rate", "each keeps 88 % of its rate (194 GB/s together)"),
            "nothing",
        ),
        (summary(pinned=10.6), ("Host → GPU, pinning gains nothing here (1.0×)",), "pinned memory gives"),
        (summary(pinned=9.0), ("Host → GPU, pinning gains nothing here (0.87×)",), "pinned memory gives"),
        (summary(kept=0.99), ("each keeps 99 % of its rate (218 GB/s together): their links are indep",), "shared"),
        (summary(kept=0.95), ("each keeps 95 % of its rate (209 GB/s together): the GPUs slow each",), "shared"),
        (summary(kept=0.26), ("about what one gets alone: **they share one bottleneck**",), "independent"),
        (summary(gpus=1), ("pinned memory gives",), "simultaneously"),
        (summary(pinned=None, small=True), ("Host → GPU, all 4 simultaneously, each keeps 88 %", SMALL_NOTE), "inning"),
        (summary(kept=0.99, small=True), ("of its rate (218 GB/s together).", SMALL_NOTE), "independent"),
        (
            both(summary(), summary(kept=0.76)),
            ("Host → GPU, all 4", "GPU → host, all 4 simultaneously, each keeps 76 %"),
            "nothing",
        ),
        (summary(pageable=None, pinned=None), ("No copy between host and GPU was measured.",), "simultaneously"),
    ],
)
def test_host(table, said, unsaid):
    text = topology.explain_host(table).data
    assert all(part in text for part in said)
    assert unsaid not in text


@pytest.mark.parametrize(
    ("far", "said", "unsaid"),
    [
        ([55.0, 41.0], "**The far NUMA node costs up to 25 %**", "gains little"),
        ([55.0, 54.0], "costs at most 1.8 %: binding ranks to nodes gains little", "**"),
        ([55.0, 55.0], "costs at most 0 %", "**"),
        ([], "one NUMA node, so no host memory is far", "costs"),
    ],
)
def test_numa(far, said, unsaid):
    table = pd.DataFrame({"near_gb_per_s": [55.0] * len(far), "far_gb_per_s": far})
    text = topology.explain_numa(table).data
    assert said in text
    assert unsaid not in text
