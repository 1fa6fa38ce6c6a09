"""Tables of a profile, on made-up runs: parts add up, spans begin at zero."""

import pytest
from made_profiles import profiled

from labkit.charts.profile import setting_label
from labkit.provenance import fact
from labkit.tables.profile import profile, trace_spans


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiles")
    return {
        "full": profiled(folder / "full"),
        "small": profiled(folder / "small", ("alone", "ddp", "fsdp"), (2,), device="cpu", scale=0.02),
    }


def test_means_over_ranks_add_up(runs):
    table = profile(runs["full"])
    assert table[["strategy", "ranks"]].to_records(index=False).tolist() == [
        ("ddp", 2),
        ("fsdp", 2),
        ("ddp", 4),
        ("fsdp", 4),
    ]
    assert table["exposed_ms"].to_list() == pytest.approx([15.075, 10.05, 15.225, 10.15])
    shares = table[["compute_share", "exposed_share", "idle_share"]].sum(axis=1)
    assert shares.to_list() == pytest.approx([1] * 4)
    assert table["overlap"].to_list() == pytest.approx([45 / 60.075, 110 / 120.05, 45 / 60.225, 110 / 120.15])
    alone = profile(runs["small"]).set_index("strategy").loc["alone"]
    assert alone["overlap"] != alone["overlap"]
    assert (alone["exposed_share"], profile(runs["small"]).attrs["small"]) == (0, True)


def test_spans_begin_at_zero_and_know_their_collective(runs):
    table = trace_spans(runs["full"], "fsdp")
    assert (table["start_ms"].min(), fact(table, "strategy"), fact(table, "ranks")) == (0, "fsdp", 4)
    assert setting_label(table, {"fsdp": "FSDP, full"}) == "FSDP, full, 4 ranks"
    assert table.groupby("rank")["start_ms"].min().to_list() == pytest.approx([0, 0.1, 0.2, 0.3], abs=1e-3)
    assert table["collective"].value_counts()["all_gather"] == 24
    assert table["end_ms"].max() == pytest.approx(58)
    with pytest.raises(ValueError, match=r"zero was not traced; traced were \['ddp', 'fsdp'\]"):
        trace_spans(runs["full"], "zero")
