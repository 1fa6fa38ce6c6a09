"""Lab 14's tables, charts and sentences of theory: rows follow the formulas, claims flip with the table."""

import itertools

import figures
import pandas as pd
import pytest
from figures import checked

from labkit.engine.run import replay
from labkit.provenance import of_source
from labkit.tables.published import published
from lessons import beyond_the_node as lab
from lessons import sharding
from lessons.beyond_the_node.theory.levels import Levels, Link

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


def test_the_line_of_a_recorded_run_is_per_hop():
    fits = sharding.fits(replay(sharding.RECORDED["links"]))
    row = fits[fits["collective"] == "all-reduce"].sort_values("ranks").iloc[-1]
    line = lab.hop_line(fits)
    assert 2 * (row["ranks"] - 1) * line.alpha_s == pytest.approx(row["alpha_us"] / 1e6)
    assert line.beta_gb_per_s == row["beta_gb_per_s"]
    with pytest.raises(ValueError, match="no line was fitted to gossip"):
        lab.hop_line(fits, "gossip")


def test_two_levels_are_both_methods_at_each_size():
    table = lab.two_levels(INSIDE, LINK, nodes=(2, 64), sizes_bytes=(1024, 2**30))
    assert len(table) == 8 and table["latency_share"].between(0, 1).all()
    row = table[(table["nodes"] == 64) & (table["method"] == "flat")].iloc[-1]
    assert row["call_ms"] == pytest.approx(1e3 * Levels(INSIDE, LINK, 64, 8).flat_s(2**30))
    checked(lab.two_levels_chart(lab.two_levels(INSIDE, LINK)))


def test_sentences_on_two_levels_flip_with_the_times():
    table = lab.two_levels(INSIDE, LINK, nodes=(2,), sizes_bytes=(4096, 2**30))
    text = lab.explain_two_levels(table).data
    assert "With 4.00 KiB two levels are 4.8× as fast as one flat ring" in text
    assert "with 1.00 GiB one flat ring is 1.7× as fast as two levels. Two levels send 47 % less between nodes" in text
    swapped = of_source(table.assign(call_ms=1 / table["call_ms"]), "made")
    assert "With 4.00 KiB one flat ring is 4.8× as fast as two levels" in lab.explain_two_levels(swapped).data
    assert (
        lab.explain_two_levels(of_source(table.assign(call_ms=1.0), "made")).data.count("both take equally long") == 2
    )


def test_traffic_of_a_step():
    table = lab.link_traffic(GPT2_BYTES, 2, 8, accumulation=(1, 4), every=100)
    sizes = table.set_index(["strategy", "accumulation"])["times_ddp"]
    assert sizes.round(3).to_dict() == {
        ("fsdp", 1): 1.5,
        ("fsdp", 4): 6.0,
        ("ddp", 1): 1.0,
        ("ddp", 4): 1.0,
        ("hsdp", 1): 0.533,
        ("hsdp", 4): 0.533,
        ("local", 1): 0.01,
        ("local", 4): 0.01,
    }
    text = lab.explain_traffic(table).data
    assert "HSDP sends 11× less between nodes than FSDP" in text and "FSDP over all GPUs sends 4.0× as much" in text
    assert "No strategy sends more" in lab.explain_traffic(lab.link_traffic(GPT2_BYTES, 2, 8, accumulation=(1,))).data


def test_efficiency_grows_with_the_link():
    table = lab.by_link_rate(0.12, GPT2_BYTES, 2, 8)
    for _, line in table.groupby(["strategy", "accumulation"]):
        assert line["efficiency"].is_monotonic_increasing


def test_sentences_on_the_link_that_is_enough():
    text = lab.explain_link_rate(lab.by_link_rate(0.12, GPT2_BYTES, 2, 8)).data
    assert "Accumulation makes 4.0× slower links enough." in text
    assert "**FSDP over all GPUs** needs more than 1 000 Gbit/s" in text
    wide = lab.by_link_rate(0.12, GPT2_BYTES, 2, 8, gbit_per_s=(10.0, 100.0, 10_000.0), strategies=("fsdp",))
    assert "Accumulation does not change that" in lab.explain_link_rate(wide).data


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
    text = lab.explain_projection(table).data
    assert "**DDP with one flat ring** keeps 28 % on 512 GPUs: most of its communication is latency" in text
    assert "A stall hits 81 % of the steps." in text


def test_without_stragglers_and_latency_the_sentences_say_so():
    table = lab.projection(INSIDE, Link(0.0, 1.0), 0.12, GPT2_BYTES, gpus=(8, 64), strategies=("ddp",))
    text = lab.explain_projection(table).data
    assert "most of its communication is bytes (100 % of it)" in text
    assert "all ranks are taken to be equally fast" in text
    near = of_source(table.assign(efficiency=0.8978), "made")
    assert "keeps 89.8 % on 8 GPUs" in lab.explain_projection(near).data, "not rounded onto the threshold"


def test_printed_speeds_and_their_links(scaling):
    assert (scaling["nodes"] > 1).all() and scaling["least_gbit_per_s"].max() == pytest.approx(632.7, abs=0.1)
    known = scaling.dropna(subset="unhidden_gbit_per_s")
    assert (known["unhidden_gbit_per_s"] > known["least_gbit_per_s"]).all()
    checked(lab.published_chart(scaling))
