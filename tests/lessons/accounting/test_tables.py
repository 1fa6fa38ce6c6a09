"""Lab 12's tables: what they say is the theory's, machines are datasheets', and mistakes give what was printed."""

import math

import pytest
from made import CPU, gpu_node

from labkit.engine.recordings import replay
from labkit.tables.published import published
from lessons import accounting, sharding
from lessons.accounting import tables
from lessons.accounting.theory import MODELS, Mesh, Model

PRINTED = published("communication_accounting")
TABLES = {
    "parts": accounting.parts,
    "labels": accounting.labels,
    "over_devices": accounting.over_devices,
    "fit": accounting.fit,
    "over_tokens": accounting.over_tokens,
    "bound": accounting.bound,
    "knobs": accounting.knobs,
    "splits": accounting.splits,
    "machines": accounting.machines,
    "drivers": accounting.drivers,
}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_says_where_it_comes_from(name):
    table = TABLES[name]()
    assert "theory" in table.attrs["source"] and table.attrs["small"] is False


def test_parts_in_both_units():
    table = accounting.parts(tokens=1).set_index("kind")
    assert (table["gb"] * 1e9).tolist() == table["bytes"].tolist() == (table["gib"] * 2**30).tolist()
    assert table["bytes_per_parameter"].iloc[:3].tolist() == [4, 4, 8]
    assert table.loc["activations", "bytes"] == 2 * 126 * (16384 + 53248)


def test_labels():
    table = accounting.labels().set_index("reading")
    assert table["devices"].tolist() == [44, 42, 41]
    assert table["gib"].iloc[1] == pytest.approx(81559 / 1024)


def test_drivers_say_more_than_labels():
    table = accounting.drivers(gpu_node(2), gpu_node(1, "Some GPU"), CPU)
    assert table["gpu"].tolist() == ["NVIDIA H200"], "one row a kind; none without a datasheet"
    assert table["over_label"].iloc[0] == pytest.approx(143771 * 2**20 / 141e9)


def test_over_devices_marks_the_fewest():
    table = accounting.over_devices()
    assert table.attrs["fewest"] == {0: {"GB": 38, "GiB": 35}, 1024: {"GB": 41, "GiB": 38}}
    assert table.attrs["own_tokens"] == {0: 38, 1024: 46}
    rows = table[table["tokens"] == 0].set_index("fsdp")["gb"]
    assert rows[38] < 95 < rows[37] and rows[35] < 95 * 2**30 / 1e9 < rows[34]
    kinds = ["parameters", "gradients", "optimizer", "activations"]
    assert table["gb"].tolist() == pytest.approx(table[kinds].sum(axis=1).tolist())


def test_fit():
    table = accounting.fit()
    assert len(table) == 4 * 11 * 7
    counts = table.set_index(["strategy", "model", "gpu"])["fewest"]
    assert counts["ZeRO-3", "70 B", "H100 80 GB"] == 16
    assert counts["DDP", "2.7b", "H100 80 GB"] == 1 and math.isnan(counts["DDP", "7 B", "H100 80 GB"])
    assert counts["ZeRO-3", "405 B", "A100 80 GB"] == counts["ZeRO-3", "405 B", "H100 80 GB"]
    assert (table["fewest"].notna() == (table["status"] == "ok")).all()


def test_fit_takes_a_model_of_ones_own():
    mine = accounting.fit(models={"mine": MODELS["70 B"]})
    every = accounting.fit()
    assert set(mine["model"]) == {"mine"}
    assert mine["fewest"].tolist() == pytest.approx(every[every["model"] == "70 B"]["fewest"].tolist(), nan_ok=True)


def test_sizes_are_what_a_model_is_made_of():
    for row in tables.sizes().set_index("model").to_dict("index").values():
        assert row.pop("parameters") == Model(**row).parameters


def test_recomputing_is_what_lets_large_models_fit():
    def most(recompute):
        table = accounting.fit(recompute=recompute).set_index(["strategy", "model", "gpu"])["fewest"]
        return table["ZeRO-3", "70 B", "H100 80 GB"]

    assert most(True) < most(False)


def test_the_bound_is_where_computing_takes_as_long_as_both_exchanges():
    (row,) = accounting.bound().to_dict("records")
    assert row["tokens"] == pytest.approx(3 / (18 * 26.562e9 / 989.5e12 - 1 / 53248)) == 8 * row["tokens_per_device"]
    assert row["math_ms"] == pytest.approx(row["fsdp_ms"] + row["tensor_ms"])
    assert accounting.bound(Mesh(1, 8, bytes_per_s=32e9))["tokens"].tolist() == [math.inf]


def test_knobs_turn_the_bound_the_right_way():
    times = accounting.knobs().set_index("knob")["times"]
    assert times["as above, 4 × 2"] == 1
    assert times["weights travel in 8 bits"] == pytest.approx(0.5)
    assert times["compute twice as fast"] > 2 and times["8 × 1 GPUs"] > 1 > times["2 × 4 GPUs"]


def test_splits():
    tokens = accounting.splits().set_index(["gpu", "tensor"])["tokens"]
    assert tokens["H200", 2] == pytest.approx(accounting.bound()["tokens"].iloc[0])
    assert tokens["H200", 1] == pytest.approx(7 * 989.5e12 / (18 * 26.562e9)) and tokens["H200", 8] == 0
    assert tokens["L40S"].isna().tolist() == [False, False, False, True]


def test_machines_are_datasheets_and_know_this_one():
    table = accounting.machines(gpu_node(2)).set_index("device")
    assert table.loc["H200", "tokens"] == pytest.approx(7 / 8 * 989.5e12 / (18 * 26.562e9))
    assert table.index[table["here"]].tolist() == ["H200"]
    assert not accounting.machines(CPU)["here"].any()
    assert table.loc["L40S", "link"] == "PCIe"


@pytest.fixture(scope="module")
def trained():
    return accounting.measured(*(replay(sharding.RECORDED[name]) for name in ("strategies", "links")))


def test_measured_is_the_recorded_runs_own(trained):
    rows = trained.set_index(["strategy", "tokens"])
    theirs = sharding.strategies(replay(sharding.RECORDED["strategies"])).set_index(["strategy", "ranks", "load"])
    assert rows.loc[("fsdp_full", 49152), "efficiency"] == theirs.loc[("fsdp_full", 2, "large"), "efficiency"]
    full = rows.loc[("fsdp_full", 49152)]
    assert full["bound_tokens"] == pytest.approx(49152 * full["least_sent_ms"] / full["least_math_ms"])
    assert full["added"] == pytest.approx(full["alone_ms"] / (full["alone_ms"] + full["line_ms"]))
    # A forward gathers all parameters in bfloat16, half of them over the link, and takes 2 FLOP a parameter and token.
    assert full["least_sent_ms"] == pytest.approx(0.5 * 774e6 * 2 / 478.116e6, rel=0.001)
    matrices_alone = accounting.machines().set_index("device").loc["H200", "tokens"] / (7 / 8) / 2
    assert full["bound_tokens"] == pytest.approx(
        matrices_alone * 2 * 774e6 / (2 * 774e6 + 4 * 36 * 1280 * 1024), rel=1e-3
    )
    assert trained["bound_tokens"].nunique() == 1, "the forward of every micro-batch gathers the same weights"
    assert full["least_math_ms"] < full["alone_ms"] and full["least_sent_ms"] < full["line_ms"]


def test_the_derivation_differs_from_the_reports_in_one_step():
    table = tables.derivation(PRINTED).set_index("step")
    assert table["same"].tolist() == [True, True, False, False, "–", False]
    compute = table.loc["compute, ns per token"]
    assert compute["report"] / compute["ours"] == pytest.approx(32), "64 devices, and one of two matrices"
    assert table["ours"].iloc[3] == pytest.approx(25301.71, abs=0.01)
    assert table["report"].iloc[3:].tolist() == pytest.approx([642.745, 641.572, 641], abs=1e-3)
