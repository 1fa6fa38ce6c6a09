"""Lab 14's tables, charts and sentences of theory: rows follow the formulas, claims flip with the table."""

import itertools

import figures
import pandas as pd
import pytest
from figures import checked

from labkit.provenance import of_source
from labkit.tables.published import published
from lessons import beyond_the_node as lab
from lessons.beyond_the_node.theory import Levels, Link

INSIDE, LINK = Link(3e-6, 300.0), Link(10e-6, 400.0)
GPT2_BYTES = 1.55e9


@pytest.fixture(autouse=True)
def units(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "KiB", "MiB", "Gbit/s", "GPUs"))


@pytest.fixture(scope="module")
def scaling():
    return lab.published_scaling(published("mpt_scaling"))


def projected(**knobs) -> pd.DataFrame:
    return lab.projection(INSIDE, LINK, 0.12, GPT2_BYTES, **{"calls": 37, "overlap": 2 / 3} | knobs)


def test_two_levels_are_both_methods_at_each_size():
    table = lab.two_levels(INSIDE, LINK, nodes=(2, 64), sizes_bytes=(1024, 2**30))
    assert len(table) == 8 and table["latency_share"].between(0, 1).all()
    row = table[(table["nodes"] == 64) & (table["method"] == "flat")].iloc[-1]
    assert row["call_ms"] == pytest.approx(1e3 * Levels(INSIDE, LINK, 64, 8).flat_s(2**30))
    checked(lab.two_levels_chart(lab.two_levels(INSIDE, LINK)))


def test_the_hierarchy_helps_or_not():
    table = lab.two_levels(INSIDE, LINK, nodes=(2,), sizes_bytes=(4096, 2**30))
    assert "gain 4.8× with the smallest message, nothing with the largest" in lab.hierarchy_helps(table).data
    assert "gain nothing" in lab.hierarchy_helps(of_source(table.assign(call_ms=1.0), "made")).data


def test_traffic_of_a_step():
    table = lab.link_traffic(GPT2_BYTES, 2, 8, accumulation=(1, 4), every=100)
    sizes = table.set_index(["strategy", "accumulation"])["times_ddp"]
    assert sizes.round(3).to_dict() == {
        ("fsdp", 1): 1.5,
        ("fsdp", 4): 4.5,
        ("ddp", 1): 1.0,
        ("ddp", 4): 1.0,
        ("hierarchical", 1): 0.533,
        ("hierarchical", 4): 0.533,
        ("hsdp", 1): 0.533,
        ("hsdp", 4): 0.533,
        ("local", 1): 0.01,
        ("local", 4): 0.01,
    }
    assert "With 4 micro-batches HSDP sends 8.4× less" in lab.hsdp_sends_less(table).data
    assert "Only FSDP sends more with more micro-batches, 3.0×" in lab.hsdp_sends_less(table).data
    few = lab.hsdp_sends_less(lab.link_traffic(GPT2_BYTES, 2, 8, accumulation=(1,))).data
    assert "2.8× less" in few and "Only FSDP" not in few


def test_the_link_that_is_needed():
    table = lab.needed_links(INSIDE, 0.0, 0.12, GPT2_BYTES, 2, 8)
    said = lab.link_needed(table).data
    assert "DDP, two levels with 4 micro-batches needs the least: 280 Gbit/s" in said
    assert "FSDP over all GPUs and HSDP can need more" in said, "the ring's slowest hop may be inside a node"
    assert "Two levels can need a faster link than one flat ring" in said
    needed = table.set_index(["strategy", "accumulation"])["gbit_per_s"]
    assert needed["ddp", 4] == pytest.approx(436, rel=1e-2)
    fast = lab.needed_links(Link(0.0, 1e6), 0.0, 0.12, GPT2_BYTES, 2, 8)
    assert "can need more" not in lab.link_needed(fast).data
    hsdp = fast[fast["strategy"] == "hsdp"]["gbit_per_s"].tolist()
    assert hsdp == pytest.approx([930, 232.5], rel=1e-3), "between nodes alone"


def test_the_slowest_of_many_ranks():
    assert lab.simulated_slowest(1000) == 1.0
    samples = (0.98, 1.0, 1.0, 1.04)
    assert lab.simulated_slowest(1, samples, steps=20_000) == pytest.approx(1.005, abs=0.002)
    every = [max(draws) for draws in itertools.product(samples, repeat=3)]
    assert lab.simulated_slowest(3, samples, steps=20_000) == pytest.approx(sum(every) / len(every), abs=0.002)
    stalled = lab.simulated_slowest(16_384, stall_probability=1e-4, stall=2.0, steps=400)
    assert stalled == pytest.approx(1 + 2 * lab.stalled_share(1e-4, 16_384), abs=0.1)
    assert stalled == lab.simulated_slowest(16_384, stall_probability=1e-4, stall=2.0, steps=400), "the same seed"


def test_projection_to_many_gpus():
    table = projected(slowness=(0.99, 1.0, 1.02), stall_probability=1e-4, stall=2.0)
    rows = table.set_index(["strategy", "gpus"])
    assert rows.loc[("ddp", 8), "nodes"] == 1 and rows.loc[("ddp", 16_384), "nodes"] == 2048
    assert rows.loc[("ddp", 16_384), "efficiency"] < 0.05, "32 766 hops one after the other"
    assert rows.loc[("tree", 16_384), "efficiency"] > 0.9 > rows.loc[("tree", 16_384), "simulated_efficiency"]
    waited = table["step_ms"] + 120 * (table["slowest"] - 1)
    assert table["simulated_efficiency"].to_numpy() == pytest.approx((120 / waited).to_numpy())
    alike = projected(gpus=(8, 64))
    assert (alike["simulated_efficiency"] == alike["efficiency"]).all(), "all ranks equally fast"
    assert table["latency_share"].between(0, 1).all()
    for guess in (None, 50):
        checked(lab.projection_chart(table, guess))
    said = lab.limits_at_scale(table).data
    assert "On 16 384 GPUs DDP, two levels, tree keeps most, 100 %; with stragglers 38 %" in said
    assert "stragglers" not in lab.limits_at_scale(alike).data


def test_printed_speeds_and_their_links(scaling):
    assert (scaling["nodes"] > 1).all() and scaling["least_gbit_per_s"].max() == pytest.approx(632.7, abs=0.1)
    known = scaling.dropna(subset="unhidden_gbit_per_s")
    assert (known["unhidden_gbit_per_s"] > known["least_gbit_per_s"]).all()
    checked(lab.published_chart(scaling))
