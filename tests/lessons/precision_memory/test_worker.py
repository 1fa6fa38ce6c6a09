"""Lab 07 run small: torch sums as simulated, the ledger explains what is counted, levers do what they say."""

import pytest

from lessons import precision_memory
from lessons.precision_memory import tables
from lessons.precision_memory.bugs import SYMPTOMS
from lessons.precision_memory.tables import faults, same_by_hand, scales_beside


def test_torch_sums_as_simulated(small):
    table = precision_memory.sums(small("numbers"))
    known = table.dropna(subset="torch")
    assert len(known) == 5 and known["equal"].all()


def test_dtypes_of_a_step(small):
    table = tables.dtypes(small("numbers")).set_index("what")
    assert set(table["float32"]) == {"float32"}, "nullcontext casts nothing"
    for precision in ("float16", "bfloat16"):
        assert table.loc["first layer's output", precision] == table.loc["logits", precision] == precision
        assert (table.loc[["parameters", "loss", "gradients"], precision] == "float32").all()


def test_autocast_by_hand_gives_the_same(small):
    assert same_by_hand(small("numbers")) == {"float16": True, "bfloat16": True}


@pytest.mark.slow
def test_the_scale_climbs_until_it_overflows(small):
    table = precision_memory.scaling(small("scaling"))
    scaled = table[table["way"] == "float16 scaled"].reset_index(drop=True)
    assert scaled["scale"].iloc[0] == 65536 and scaled["scale"].max() > 65536
    for step in scaled.index[scaled["skipped"]][:-1]:
        assert scaled["scale"][step + 1] == scaled["scale"][step] / 2
    both = scales_beside(table)
    assert len(both) == 12 and both["scale"].equals(both["scale_torch"]) and both["loss"].equals(both["loss_torch"])
    assert (table[table["way"].isin(["float32", "float16", "bfloat16"])]["scale"] == 1).all()
    histogram = precision_memory.gradients(small("scaling"))
    assert histogram.groupby("of")["share"].sum().to_list() == pytest.approx([1, 1])


def test_every_peak_is_explained(small):
    table = precision_memory.memory(small("memory"))
    assert len(table) == 2 * 2 * 4
    assert table["unexplained_share"].abs().max() < 0.02
    assert table["counted_error"].max() < 0.01
    steady, first = (table[table["phase"] == f"{name} step"]["peak"].to_numpy() for name in ("steady", "first"))
    assert (steady > first).all()


@pytest.mark.slow
def test_a_timeline_has_two_steps_and_lines(small):
    run = small("timeline")
    for precision in ("float32", "bfloat16"):
        table = precision_memory.timeline(run, precision)
        phases = table.loc[table["phase"] != table["phase"].shift(), "phase"]
        # The last update may be shorter than the table's moments are apart.
        assert phases.to_list()[:5] == ["forward", "backward", "optimizer", "forward", "backward"]
        assert table["optimizer_mib"].iloc[-1] == pytest.approx(2 * table["base_mib"].iloc[0], rel=0.02)
        top = precision_memory.allocations(run, precision)
        assert top["size_mib"].is_monotonic_decreasing
        assert top["line"].str.contains(r"\.py:\d+$").all() and top["source"].str.len().gt(3).all()
    assert any("cross_entropy" in source for source in precision_memory.allocations(run, "float32")["source"])


@pytest.mark.slow
def test_levers(small):
    table = precision_memory.levers(small("levers")).set_index("lever")
    peak = table["peak_mib"]
    assert peak["checkpoint every block"] < peak["checkpoint, selective"] < peak["plain"]
    assert peak["gradients set to zero"] > peak["plain"]
    assert peak["bfloat16 weights"] < peak["plain"]
    assert peak["all: bfloat16, checkpoint, in backward"] == peak.min()
    assert peak["optimizer in backward"] == pytest.approx(peak["plain"], rel=0.02)
    losses = small("levers").rows.groupby("lever")["loss"].last()
    exact = ["checkpoint every block", "checkpoint, selective", "optimizer in backward", "gradients set to zero"]
    assert losses[exact].to_list() == pytest.approx([losses["plain"]] * 4, rel=1e-3)


@pytest.mark.slow
def test_every_bug_is_told_by_its_own_symptom(small):
    rows = precision_memory.symptoms(small("trial")).to_dict("records")
    assert {row["variant"]: faults(row) for row in rows} == {name: [name] for name in SYMPTOMS}
