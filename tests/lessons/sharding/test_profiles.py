"""Kernels of two strategies and one rank's memory, on made-up runs: differences add up."""

import pytest
from made import CPU, write_run
from made_profiles import profiled
from traced_plan import Traced

from lessons.sharding.tables import memory_timeline, operators, segments


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiles")
    return {
        "full": profiled(folder / "full"),
        "small": profiled(folder / "small", ("alone", "ddp", "fsdp"), (2,), device="cpu", scale=0.02),
    }


def test_operator_differences_add_up_and_unlisted_kernels_count_as_none(runs):
    table = operators(runs["full"], "fsdp", "ddp")
    assert table["operator"].to_list() == ["all_gather", "all_reduce", "copy", "gemm", "all others"]
    # The mean over four ranks is 15 µs above rank 0.
    assert table["difference_us"].to_list() == pytest.approx([815, -515, 105, 10, -10])
    assert table.loc[1, ["calls", "base_calls", "calls_difference"]].to_list() == [0, 12, -12]
    assert table["total_us"].sum() == pytest.approx(2010 + 800 + 90 + 60 + 4 * 15)
    assert table["base_total_us"].sum() == pytest.approx(2000 + 500 + 70 + 3 * 15)
    assert table["calls_difference"].sum() == 188 - 142
    assert (table.attrs["strategy"], table.attrs["base"], table.attrs["ranks"]) == ("fsdp", "ddp", 4)
    assert operators(runs["full"], "fsdp", "ddp", ranks=2).loc[0, "difference_us"] == pytest.approx(805)
    with pytest.raises(ValueError, match=r"fsdp and alone .* known are .*'ddp', 4"):
        operators(runs["full"], "fsdp", "alone")


def test_many_operators_are_twelve_rows_with_the_same_total(tmp_path):
    rows = []
    for point, strategy in enumerate(("ddp", "fsdp")):
        knobs = {"point": point, "seed": 0, "strategy": strategy, "ranks": 1, "entry": "operator", "family": "other"}
        rows += [(0, knobs | {"operator": f"k{i}", "calls": 1 + point, "total_us": 1.0 + i * point}) for i in range(30)]
    table = operators(write_run(tmp_path / "run", Traced(device="cpu"), CPU, rows), "fsdp", "ddp")
    assert len(table) == 12
    assert table["operator"].iloc[[0, -1]].to_list() == ["k29", "all others"]
    assert (table["difference_us"].sum(), table["calls"].sum(), table["base_calls"].sum()) == (435, 60, 30)


def test_memory_of_one_rank(runs):
    table = memory_timeline(runs["full"], strategy="fsdp")
    assert table["allocated_mib"].tolist() == [900, 3900], "of one rank at one point"
    table = segments(runs["full"])
    assert (len(table), table["segments"].sum()) == (201, 230)
    assert table.attrs["unused_share"] == pytest.approx(1 - table["allocated_mib"].sum() / table["segment_mib"].sum())
    none = memory_timeline(runs["small"]), segments(runs["small"])
    assert all(table.empty and "t_ms" in none[0] for table in none)
